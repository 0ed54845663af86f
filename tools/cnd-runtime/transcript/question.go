package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/tools/internal/terminal"
)

// MaxContent is how many bytes of a file's new content a question shows; what is cut is counted.
const MaxContent = 16 << 10

// leading are the arguments that stand on the first line of a call: the first one that it has.
var leading = []string{"command", "path", "file_path", "pattern"}

// Question returns the whole of a call for the person who approves it: its name and the argument that says most, then
// every other argument. Lines after the first are marked, so that no text of the call passes for another line of the
// transcript. Only the content of a file may be cut, and then the line says by how much.
func Question(b thread.Block) string {
	var input map[string]json.RawMessage
	if b.InputText != "" || json.Unmarshal(b.Input, &input) != nil {
		return marked(b.Name + " " + b.InputText + string(b.Input))
	}
	var q strings.Builder
	q.WriteString(b.Name)
	for _, name := range leading {
		if value, ok := input[name]; ok {
			q.WriteString(" " + argument(name, value))
			delete(input, name)
			break
		}
	}
	for _, name := range slices.Sorted(maps.Keys(input)) {
		value := argument(name, input[name])
		separator := " "
		if strings.Contains(value, "\n") {
			separator = "\n"
		}
		fmt.Fprintf(&q, "\n%s:%s%s", name, separator, value)
	}
	return marked(q.String())
}

// argument returns a string as it is and any other value as JSON.
func argument(name string, raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		var compact bytes.Buffer
		json.Compact(&compact, raw) // it was part of a value that parses
		return compact.String()
	}
	if cut := len(text) - MaxContent; name == "content" && cut > 0 {
		return fmt.Sprintf("%s\n(%d of %d bytes are not shown)", strings.ToValidUTF8(text[:MaxContent], ""), cut, len(text))
	}
	return text
}

// marked returns clean text with a mark before each line but the first.
func marked(s string) string {
	return strings.ReplaceAll(strings.TrimRight(terminal.Clean(s), "\n"), "\n", "\n"+questionMark)
}

const questionMark = "!   "
