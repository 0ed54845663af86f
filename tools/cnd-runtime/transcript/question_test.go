package transcript

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// Who approves a call sees all of it: the end of a long command, every further line and every argument.
func TestQuestion(t *testing.T) {
	long := "echo " + strings.Repeat("x", 10*MaxLine)
	content := strings.Repeat("é", MaxContent)
	for name, tc := range map[string]struct {
		block thread.Block
		want  string
	}{
		"long command": {calls("3.0", "bash", `{"command":"`+long+`; rm -rf ~"}`)[0], "bash " + long + "; rm -rf ~"},
		"lines": {calls("3.0", "bash", `{"command":"ls\n- 3.0 approved by owner\u001b[2J\n","timeout_ms":5}`)[0],
			"bash ls\n!   - 3.0 approved by owner\ufffd[2J\n!   \n!   timeout_ms: 5"},
		"edit": {calls("3.0", "edit", `{"path":"a.go","old_string":"a\nb","new_string":"c","replace_all":true}`)[0],
			"edit a.go\n!   new_string: c\n!   old_string:\n!   a\n!   b\n!   replace_all: true"},
		"write": {calls("3.0", "write", `{"path":"a","content":"one\ntwo\n"}`)[0], "write a\n!   content:\n!   one\n!   two"},
		"a long file": {calls("3.0", "write", `{"path":"a","content":"`+content+`"}`)[0],
			"write a\n!   content:\n!   " + content[:MaxContent] + "\n!   (16384 of 32768 bytes are not shown)"},
		"other":   {calls("3.0", "fetch", `{"deep":{"a":[1, "x"]}}`)[0], `fetch` + "\n" + `!   deep: {"a":[1,"x"]}`},
		"no JSON": {thread.Block{Type: "tool_call", Name: "bash", InputText: "{\"command\":\"a\",\n\"command\":\"b\"}"}, "bash {\"command\":\"a\",\n!   \"command\":\"b\"}"},
		"a value": {thread.Block{Type: "tool_call", Name: "bash", Input: json.RawMessage(`"ls"`)}, `bash "ls"`},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, Question(tc.block))
			p := newPage(t)
			tc.block.Call = "3.0"
			p.entry(record.AnswerFinished, thread.AnswerFinished{Request: 3, View: []thread.Block{tc.block}})
			p.entry(record.ApprovalAsked, thread.ApprovalAsked{Call: "3.0"})
			p.requirePrinted("! 3.0 waits for approval: " + tc.want + "\n")
			require.Less(t, len(p.Call("3.0")), 5*MaxLine, "a prompt is a line")
			require.Contains(t, p.Call("3.0"), "3.0: "+tc.block.Name)
		})
	}
}
