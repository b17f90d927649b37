package app

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"
)

// format is how a command prints: for people, or as JSON.
type format string

const (
	people format = ""
	asJSON format = "json"
)

var _ pflag.Value = (*format)(nil)

func (f *format) addFlag(flags *pflag.FlagSet) {
	flags.VarP(f, "output", "o", "json prints what the API answers (default: for people)")
}

// Set reads a format.
func (f *format) Set(text string) error {
	if format(text) != asJSON {
		return fmt.Errorf("must be json, not %q", text)
	}
	*f = asJSON
	return nil
}

// String returns the name of the format.
func (f *format) String() string { return string(*f) }

// Type is what the help calls the value.
func (f *format) Type() string { return "FORMAT" }

// printJSON prints a document. URLs in it stay readable.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printable returns a text as one line that does nothing to a terminal: messages quote what proxies and clouds answer.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

// row joins cells, of which what others wrote does nothing to a terminal.
func row(cells ...string) string {
	var line []string
	for _, cell := range cells {
		line = append(line, printable(cell))
	}
	return strings.TrimRight(strings.Join(line, "\t"), "\t ")
}

// joined returns a word and a sentence, either of which may be missing.
func joined(word, sentence string) string {
	if word == "" || sentence == "" {
		return word + sentence
	}
	return word + ": " + sentence
}

// shortDuration returns a duration as people write it: 5m and not 5m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
