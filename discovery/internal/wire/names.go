package wire

import "encoding/json"

// Names returns the names of the members of a JSON object that is known to be well formed, as often and in the order in
// which they stand there.
func Names(object []byte) []string {
	var names []string
	depth, named := 0, false // whether the member that is being read has its name
	for i := 0; i < len(object); i++ {
		switch object[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			named = named && depth > 1
		case '"':
			end := stringEnd(object, i)
			if depth == 1 && !named {
				var name string
				_ = json.Unmarshal(object[i:end], &name) // it is well formed
				names, named = append(names, name), true
			}
			i = end - 1
		}
	}
	return names
}

// stringEnd returns where the string ends that begins at a place.
func stringEnd(text []byte, at int) int {
	for at++; at < len(text) && text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return min(at+1, len(text))
}
