package manifest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/proxyfleet/fleet/proxy"
)

// decode fills the struct that to points to from an object, by its JSON tags. It returns a [proxy.FieldError] for each
// field that the struct does not have and for each value that does not fit.
//
// Package encoding/json stops at the first such value, does not say which field a custom UnmarshalJSON refused, and
// quotes numbers, which in a Secret are secret.
func decode(object map[string]any, to any) []error {
	var d decoder
	d.value("", object, reflect.ValueOf(to).Elem())
	return d.problems
}

type decoder struct{ problems []error }

func (d *decoder) add(path, problem string) {
	d.problems = append(d.problems, &proxy.FieldError{Field: cmp.Or(path, "document"), Problem: problem})
}

func (d *decoder) value(path string, v any, to reflect.Value) {
	if v == nil {
		return // as if it were left out, which is what null means to Kubernetes
	}
	if u, ok := reflect.TypeAssert[json.Unmarshaler](to.Addr()); ok {
		d.custom(path, v, u)
		return
	}
	switch to.Kind() {
	case reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		d.value(path, v, to.Elem())
	case reflect.Struct:
		d.object(path, v, to)
	case reflect.Map:
		d.dict(path, v, to)
	case reflect.Slice:
		d.list(path, v, to)
	case reflect.Interface:
		to.Set(reflect.ValueOf(v))
	default:
		d.scalar(path, v, to)
	}
}

func (d *decoder) object(path string, v any, to reflect.Value) {
	object, ok := v.(map[string]any)
	if !ok {
		d.add(path, "must be an object, not "+named(v))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if field, ok := fieldOf(to, name); ok {
			d.value(join(path, name), object[name], field)
		} else {
			d.add(join(path, name), "unknown field")
		}
	}
}

// fieldOf returns the field of a struct that has a JSON name. The case must match, as it must for Kubernetes.
func fieldOf(s reflect.Value, name string) (reflect.Value, bool) {
	for i := range s.NumField() {
		if tag, _, _ := strings.Cut(s.Type().Field(i).Tag.Get("json"), ","); tag == name {
			return s.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func (d *decoder) dict(path string, v any, to reflect.Value) {
	object, ok := v.(map[string]any)
	if !ok {
		d.add(path, "must be an object, not "+named(v))
		return
	}
	to.Set(reflect.MakeMapWithSize(to.Type(), len(object)))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		item := reflect.New(to.Type().Elem()).Elem()
		d.value(join(path, key), object[key], item)
		to.SetMapIndex(reflect.ValueOf(key), item)
	}
}

func (d *decoder) list(path string, v any, to reflect.Value) {
	list, ok := v.([]any)
	if !ok {
		d.add(path, "must be a list, not "+named(v))
		return
	}
	to.Set(reflect.MakeSlice(to.Type(), len(list), len(list)))
	for i := range list {
		d.value(path+"["+strconv.Itoa(i)+"]", list[i], to.Index(i))
	}
}

func (d *decoder) scalar(path string, v any, to reflect.Value) {
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, to.Addr().Interface())
	}
	switch {
	case err == nil:
	case to.CanInt() && excess(v) != "":
		d.add(path, fmt.Sprintf("is %s a number: must be %s, which is up to %d",
			excess(v), wanted(to.Type()), math.MaxInt64>>(64-to.Type().Bits())))
	default:
		d.add(path, "must be "+wanted(to.Type())+", not "+named(v))
	}
}

// excess says how a whole number misses a type that did not take it, or "" of what is no whole number.
func excess(v any) string {
	n := reflect.ValueOf(v)
	switch {
	case n.CanInt() && n.Int() < 0, n.CanFloat() && n.Float() < 0 && isWhole(n.Float()):
		return "too small"
	case n.CanInt(), n.CanUint(), n.CanFloat() && isWhole(n.Float()):
		return "too large"
	}
	return ""
}

func isWhole(f float64) bool { return f == math.Trunc(f) && !math.IsInf(f, 0) }

// custom is for types that read themselves. What they say may quote the value, so no Secret has one.
func (d *decoder) custom(path string, v any, to json.Unmarshaler) {
	b, err := json.Marshal(v)
	if err != nil {
		d.add(path, "holds a number that is not finite")
		return
	}
	if err := to.UnmarshalJSON(b); err != nil {
		d.add(path, err.Error())
	}
}

var plainName = regexp.MustCompile(`^[-_./A-Za-z0-9]{1,253}$`)

// join appends a name to a path.
func join(path, name string) string {
	if !plainName.MatchString(name) {
		name = strconv.Quote(name[:min(len(name), 253)])
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// wanted says what a scalar of a type is written as.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number of at most " + strconv.Itoa(t.Bits()) + " bits"
	}
	return "of type " + t.String()
}

// named says what kind of value v is, and never which.
func named(v any) string {
	switch v.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return "a string"
	case bool:
		return "true or false without quotes"
	}
	return "a number without quotes"
}
