package store

import "context"

// handle answers a request, or has it wait. An error ends the session.
func (s *session) handle(req *request) error {
	switch req.op {
	case opSet:
		return s.answer(req.id, nil, s.store.set(req.key, req.value))
	case opAdd:
		sum, err := s.store.add(req.key, req.delta)
		return s.answer(req.id, numberResult(sum), err)
	case opCompareSet:
		value, err := s.store.compareSet(req.key, req.expected, req.value, anyLength)
		return s.answer(req.id, optionalResult(value), err)
	case opDelete:
		was, err := s.store.remove(req.key)
		return s.answer(req.id, boolResult(was), err)
	case opGet:
		value, err := s.store.peek(req.key)
		if value != nil || err != nil {
			return s.answer(req.id, value, err)
		}
		key := req.key
		return s.wait(req, func(ctx context.Context) ([]byte, error) { return s.store.get(ctx, key) })
	case opWait:
		present, err := s.store.present(req.keys, s.store.has)
		if present || err != nil {
			return s.answer(req.id, nil, err)
		}
		keys := req.keys
		return s.wait(req, func(ctx context.Context) ([]byte, error) { return nil, s.store.Wait(ctx, keys...) })
	case opAppend:
		return s.answer(req.id, nil, s.store.extend(req.key, req.value))
	case opCheck:
		present, err := s.store.present(req.keys, s.store.has)
		return s.answer(req.id, boolResult(present), err)
	case opNumKeys:
		n, err := s.store.count(req.key)
		return s.answer(req.id, numberResult(int64(n)), err)
	case opList:
		keys, err := s.store.list(req.key)
		return s.answer(req.id, listResult(keys), err)
	case opMultiGet:
		values, all, err := s.store.peekAll(req.keys)
		if all || err != nil {
			return s.answer(req.id, listResult(values), err)
		}
		keys := req.keys
		return s.wait(req, func(ctx context.Context) ([]byte, error) {
			values, err := s.store.multiGet(ctx, keys)
			return listResult(values), err
		})
	case opMultiSet:
		return s.answer(req.id, nil, s.store.multiSet(req.items))
	case opCancel:
		s.interrupt(req.id)
	}
	return nil
}
