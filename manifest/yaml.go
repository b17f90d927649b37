package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v2"
)

// text is one document as a file has it.
type text struct {
	// line is where its content begins, first where its body does. Both count from 1.
	line, first int
	body        []byte
}

// split cuts a file at the lines that begin with --- or ..., as YAML has it, and leaves out documents without content.
// It does not parse: a document that is broken takes no other one with it.
func split(data []byte) []text {
	var docs []text
	doc, start, end, n := text{first: 1}, 0, 0, 0
	flush := func() {
		if doc.body = data[start:end]; doc.line > 0 {
			docs = append(docs, doc)
		}
	}
	for line := range bytes.Lines(data) {
		n++
		content := line
		if isMarker(line, "---") || isMarker(line, "...") {
			flush()
			content = line[len("---"):]
			doc, start = text{first: n}, end+len("---")
		}
		end += len(line)
		if content = bytes.TrimSpace(content); doc.line == 0 && len(content) > 0 && content[0] != '#' {
			doc.line = n
		}
	}
	flush()
	return docs
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.ContainsRune([]byte(" \t\r\n"), rune(rest[0])))
}

// lineError is a problem of a document whose line is known.
type lineError struct {
	line    int // within the body, from 1; 0 if not known
	problem string
}

func (e *lineError) Error() string { return e.problem }

// tree parses one document into maps with string keys, lists, and scalars. YAML is read by the library that kubectl uses,
// so that the same text means the same. budget is how much the document may still expand to by its aliases.
//
// The library's parser is used rather than its conversion to JSON because that ignores what follows the first document,
// and because its errors quote values, which may be secrets.
func tree(body []byte, budget *int) (any, []error) {
	var v, more any
	d := yaml.NewDecoder(bytes.NewReader(body))
	d.SetStrict(true)
	if err := d.Decode(&v); err != nil {
		return nil, yamlErrors(err)
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, []error{errors.New("goes on after its end: begin each document with a line that holds only ---")}
	}
	v, err := plain(v, budget)
	if err != nil {
		return nil, []error{err}
	}
	return v, nil
}

var errTooLarge = fmt.Errorf("expands to more than %d MiB: use fewer aliases", maxExpanded>>20)

// plain turns what the parser returns into what encoding/json would return for the same document.
func plain(v any, budget *int) (any, error) {
	if *budget--; *budget < 0 {
		return nil, errTooLarge
	}
	switch v := v.(type) {
	case string:
		*budget -= len(v)
		return v, nil
	case []any:
		for i := range v {
			var err error
			if v[i], err = plain(v[i], budget); err != nil {
				return nil, err
			}
		}
		return v, nil
	case map[any]any:
		return plainMap(v, budget)
	}
	return v, nil
}

func plainMap(v map[any]any, budget *int) (any, error) {
	m := make(map[string]any, len(v))
	for k, item := range v {
		key, err := plainKey(k)
		if err != nil {
			return nil, err
		}
		if _, twice := m[key]; twice {
			return nil, fmt.Errorf("has the key %q twice in one object", key)
		}
		*budget -= len(key)
		if m[key], err = plain(item, budget); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// plainKey writes a key as JSON needs it, and as kubectl does.
func plainKey(k any) (string, error) {
	switch k := k.(type) {
	case string:
		if !utf8.ValidString(k) {
			return "", errors.New("has a key that is not UTF-8")
		}
		return k, nil
	case bool, int, int64, uint64:
		return fmt.Sprint(k), nil
	case float64:
		return strconv.FormatFloat(k, 'g', -1, 32), nil
	}
	return "", errors.New("has a key that is not a string")
}

var (
	yamlLine      = regexp.MustCompile(`(?s)^(?:yaml: )?(?:line (\d+): )?(.*)$`)
	yamlDuplicate = regexp.MustCompile(`^key ("[^"\\]{1,253}") already set in map$`)
)

// yamlErrors rewrites what the parser says. Only messages without a value in them are passed on.
func yamlErrors(err error) []error {
	messages := []string{err.Error()}
	if t, ok := errors.AsType[*yaml.TypeError](err); ok {
		messages = t.Errors
	}
	var all []error
	for _, message := range messages {
		parts := yamlLine.FindStringSubmatch(message) // it matches whatever the message is
		line, _ := strconv.Atoi(parts[1])
		all = append(all, &lineError{line, yamlProblem(parts[2])})
	}
	return all
}

func yamlProblem(message string) string {
	if key := yamlDuplicate.FindStringSubmatch(message); key != nil {
		return fmt.Sprintf("has the key %s twice in one object", key[1])
	}
	fixed := []string{"did not find ", "could not find ", "found ", "block ", "mapping ", "control characters ", "exceeded max depth ",
		"document contains excessive aliasing", "map merge "}
	switch {
	case slices.ContainsFunc(fixed, func(s string) bool { return strings.HasPrefix(message, s) }):
		return "is not YAML: " + message
	case strings.HasPrefix(message, "unknown anchor "):
		return "is not YAML: an alias has no anchor; a value that begins with * belongs in quotes"
	case strings.HasSuffix(message, " already set in map"):
		return "has a key twice in one object"
	}
	return "is not YAML"
}
