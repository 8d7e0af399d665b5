package launch

import (
	"cmp"
	"reflect"
	"testing"
	"time"
)

// Each field of AgentConfig reaches a part that needs it.
func TestConfigReachesItsParts(t *testing.T) {
	var c AgentConfig
	fill(reflect.ValueOf(&c).Elem(), new(int64))
	whole, parts := reflect.ValueOf(c), []reflect.Value{reflect.ValueOf(c.rendezvousConfig()), reflect.ValueOf(c.supervisorConfig())}
	found := map[string]bool{}
	for _, field := range reflect.VisibleFields(whole.Type()) {
		if field.Anonymous || !settable(field.Type) {
			continue
		}
		for _, part := range parts {
			if got := part.FieldByName(field.Name); got.IsValid() &&
				reflect.DeepEqual(got.Interface(), whole.FieldByIndex(field.Index).Interface()) {
				found[field.Name] = true
			} else if got.IsValid() {
				t.Errorf("%s is %v, and %v in the %v", field.Name, whole.FieldByIndex(field.Index), got, part.Type())
			}
		}
		if !found[field.Name] {
			t.Errorf("%s reaches neither part", field.Name)
		}
	}
	if len(found) < 40 {
		t.Errorf("only %d fields were looked at", len(found))
	}
}

// The limit of the node checks is added to JoinTimeout, because an agent joins only after its checks.
func TestChecksAreNoPartOfTheTimeToMeet(t *testing.T) {
	checks := [][]string{{"nhc"}}
	for _, tc := range []struct{ join, limit, want time.Duration }{
		{0, 0, defaultJoinTimeout + time.Minute}, {time.Second, 30 * time.Second, 31 * time.Second},
	} {
		for _, c := range []AgentConfig{{NodeChecks: NodeChecks{Checks: checks, CheckLimit: tc.limit}}, {}} {
			c.World, c.Command, c.JoinTimeout = World{Count: 1, Host: "n1", Nproc: 1}, []string{"x"}, tc.join
			want := tc.want
			if len(c.Checks) == 0 {
				want = cmp.Or(tc.join, defaultJoinTimeout)
			}
			if c, err := c.withDefaults(); err != nil || c.JoinTimeout != want {
				t.Errorf("checks %q: agents wait for %v, %v; want %v", c.Checks, c.JoinTimeout, err, want)
			}
		}
	}
}

// settable reports whether fill can set a field of a type.
func settable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Int, reflect.Int64, reflect.String, reflect.Bool:
		return true
	case reflect.Slice:
		return t.Elem().Kind() == reflect.Int || t.Elem().Kind() == reflect.String
	}
	return false
}

// fill sets all settable fields to different values.
func fill(v reflect.Value, n *int64) {
	for i := range v.NumField() {
		f := v.Field(i)
		*n++
		switch {
		case !f.CanSet():
		case v.Type().Field(i).Anonymous:
			fill(f, n)
		case f.Kind() == reflect.Int || f.Kind() == reflect.Int64:
			f.SetInt(*n)
		case f.Kind() == reflect.String:
			f.SetString(string(rune('a' + *n)))
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case settable(f.Type()):
			f.Set(reflect.MakeSlice(f.Type(), int(*n), int(*n)))
		}
	}
}
