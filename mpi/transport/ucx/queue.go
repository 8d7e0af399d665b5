package ucx

// queue keeps values in order. The zero value is empty.
type queue[T any] struct {
	items []T // the values from at on
	at    int
}

func (q *queue[T]) len() int { return len(q.items) - q.at }

func (q *queue[T]) first() T { return q.items[q.at] }

func (q *queue[T]) all() []T { return q.items[q.at:] }

func (q *queue[T]) push(v T) {
	if q.at > len(q.items)/2 { // so that a queue that is never empty does not grow
		n := copy(q.items, q.items[q.at:])
		clear(q.items[n:])
		q.items, q.at = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

// pop removes the first value.
func (q *queue[T]) pop() T {
	v := q.items[q.at]
	clear(q.items[q.at : q.at+1])
	if q.at++; q.at == len(q.items) {
		q.items, q.at = q.items[:0], 0
	}
	return v
}
