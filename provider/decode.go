package provider

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// DecodeConfig decodes what a [Config] holds, strictly: a field that the struct does not have, in whatever depth, is an
// error that names it, and so are a field that stands there twice and data after the value. The case of a field's name
// counts, unlike in package encoding/json. Absent and null leave into as it is. After an error, into is of no use.
func DecodeConfig(raw json.RawMessage, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	s := strict{decoder: json.NewDecoder(bytes.NewReader(raw))}
	s.value("config", reflect.TypeOf(into))
	return errors.Join(s.problems...)
}

// strict walks through JSON that decodes into a type, and collects what package encoding/json tolerates.
type strict struct {
	decoder  *json.Decoder
	problems []error
}

// value walks through one value.
func (s *strict) value(path string, t reflect.Type) {
	for t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
	}
	if decodesItself(t) || t.Kind() == reflect.Interface {
		s.skip()
		return
	}
	token, err := s.decoder.Token()
	if err != nil {
		s.problems = append(s.problems, err)
		return
	}
	switch token {
	case json.Delim('{'):
		s.object(path, t)
	case json.Delim('['):
		for i := 0; s.decoder.More(); i++ {
			s.value(fmt.Sprintf("%s[%d]", path, i), t.Elem())
		}
		_, _ = s.decoder.Token()
	}
}

// object walks through the members of an object whose brace has been read, and its closing brace.
func (s *strict) object(path string, t reflect.Type) {
	var fields map[string]reflect.Type
	if t.Kind() == reflect.Struct {
		fields = fieldsOf(t)
	}
	seen := map[string]bool{}
	for s.decoder.More() {
		token, _ := s.decoder.Token()
		key, _ := token.(string)
		member := path + "." + key
		if seen[key] {
			s.problems = append(s.problems, fmt.Errorf("%s: the field stands there twice", member))
		}
		seen[key] = true
		switch field, ok := fields[key]; {
		case ok:
			s.value(member, field)
		case t.Kind() == reflect.Map:
			s.value(member, t.Elem())
		default:
			s.problems = append(s.problems, fmt.Errorf("%s: there is no such field; the fields are %s", member, names(fields)))
			s.skip()
		}
	}
	_, _ = s.decoder.Token()
}

func (s *strict) skip() {
	var ignored json.RawMessage
	_ = s.decoder.Decode(&ignored)
}

// decodesItself says whether a type has its own form of JSON, and its own strictness.
func decodesItself(t reflect.Type) bool {
	for _, t := range []reflect.Type{t, reflect.PointerTo(t)} {
		if t.Implements(reflect.TypeFor[json.Unmarshaler]()) || t.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			return true
		}
	}
	return false
}

// fieldsOf returns the fields of a struct by their names in JSON.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-", !f.IsExported(), f.Anonymous && name == "":
		case name == "":
			fields[f.Name] = f.Type
		default:
			fields[name] = f.Type
		}
	}
	return fields
}

func names(fields map[string]reflect.Type) string {
	var all []string
	for name := range fields {
		all = append(all, name)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
