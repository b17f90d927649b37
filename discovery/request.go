package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
)

// readBody reads the one JSON object that a body must be. It knows every field, or names the one that it does not, and
// takes none twice.
func readBody(r *http.Request, into any) error {
	body, err := bodyOf(r)
	if err != nil {
		return err
	}
	body = bytes.TrimSpace(body)
	if !bytes.HasPrefix(body, []byte("{")) {
		return invalid("the body must be a JSON object; where nothing is to be said it is {}")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return unreadable(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return invalid("the body must be one JSON object, with nothing behind it")
	}
	return checkNames(body, reflect.TypeOf(into).Elem())
}

// bodyOf reads the body of a request to its end, or says why it cannot be taken.
func bodyOf(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &problem{http.StatusRequestEntityTooLarge, wire.BodyTooLarge,
			fmt.Sprintf("the body must not be longer than %d bytes", tooLarge.Limit)}
	}
	if err != nil {
		return nil, invalid("the body could not be read to its end")
	}
	return body, nil
}

// checkNames finds what package encoding/json tolerates in an object that it has read into a struct: the name of a field in
// another case, and a field that is there twice.
func checkNames(object []byte, t reflect.Type) error {
	seen := map[string]bool{}
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		seen[name] = false
	}
	for _, name := range wire.Names(object) {
		again, known := seen[name]
		if !known {
			return invalid("unknown field %q", name)
		}
		if again {
			return invalid("%s must be given once", name)
		}
		seen[name] = true
	}
	return nil
}

// unreadable says what is wrong with a body.
func unreadable(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return invalid("the body is no JSON: %v, at byte %d", syntax, syntax.Offset)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return invalid("%s must be %s, not %s", wrong.Field, kind(wrong.Type), wrong.Value)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return invalid("the body is no JSON: it ends too early")
	}
	return invalid("%s", strings.TrimPrefix(err.Error(), "json: "))
}

// kind names a type as people who write JSON do.
func kind(t reflect.Type) string {
	if t.Kind() == reflect.String {
		return "a string"
	}
	return "a whole number"
}

// readQuery returns the parameters of a request, each of which is known and there once.
func readQuery(r *http.Request, known func(name string) bool) (map[string]string, error) {
	if r.URL.RawQuery == "" {
		return nil, nil //nolint:nilnil // there are none
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, invalid("the query string cannot be read: %v", err)
	}
	query := make(map[string]string, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !known(name) {
			return nil, invalid("unknown query parameter %q", name)
		}
		if len(values[name]) > 1 {
			return nil, invalid("query parameter %q must be given once", name)
		}
		query[name] = values[name][0]
	}
	return query, nil
}
