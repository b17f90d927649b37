package provider

import "strings"

// maxText bounds what is passed on of a text that a backend wrote, in bytes.
const maxText = 1024

// Clip returns what may be passed on of a text that a backend wrote: at most 1 KiB of valid UTF-8, with an ellipsis behind
// what was longer. Backends quote whole pages in their errors; logs, answers, records and spans are no place for them.
func Clip(text string) string {
	const more = "…"
	text = strings.ToValidUTF8(text, "?")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText-len(more)], "") + more
	}
	return text
}
