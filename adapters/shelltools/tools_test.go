package shelltools

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/thread"
)

func TestSpecs(t *testing.T) {
	b := newBench(t)
	specs := b.tools.Specs()
	require.Len(t, specs, len(names))
	for i, spec := range specs {
		require.Equal(t, names[i], spec.Name)
		require.NotEmpty(t, spec.Description)
		var schema struct {
			Type       string                     `json:"type"`
			Properties map[string]json.RawMessage `json:"properties"`
			Required   []string                   `json:"required"`
			Additional *bool                      `json:"additionalProperties"`
		}
		require.NoError(t, json.Unmarshal(spec.InputSchema, &schema))
		require.Equal(t, "object", schema.Type)
		require.NotNil(t, schema.Additional)
		require.NotNil(t, b.tools.tool(spec.Name))
		for _, name := range schema.Required {
			require.Contains(t, schema.Properties, name)
		}
		// Every property of the schema is a field of the input, whatever its type: a wrong one is told by its name.
		for name := range schema.Properties {
			p := b.plan(b.call(spec.Name, map[string]any{name: map[string]any{}}))
			require.NotNil(t, p.Refused)
			require.Contains(t, textOf(p.Refused), name)
			require.NotContains(t, textOf(p.Refused), "unknown field")
		}
	}
}

func TestReplayRules(t *testing.T) {
	b := newBench(t)
	b.put("a", "x")
	for _, c := range []struct {
		tool   string
		input  any
		replay string
		writes bool
	}{
		{"read", readInput{Path: "a"}, thread.ReplaySafe, false},
		{"glob", globInput{Pattern: "*"}, thread.ReplaySafe, false},
		{"grep", grepInput{Pattern: "x"}, thread.ReplaySafe, false},
		{"write", map[string]string{"path": "a", "content": ""}, thread.ReplayUnsafe, true},
		{"edit", editInput{Path: "a", Old: "x", New: "y"}, thread.ReplayUnsafe, true},
		{"bash", bashInput{Command: "true"}, thread.ReplayUnsafe, true},
	} {
		call := b.call(c.tool, c.input)
		p := b.plan(call)
		require.Nil(t, p.Refused, c.tool)
		require.Equal(t, c.replay, p.Replay, c.tool)
		require.Equal(t, c.writes, p.Writes, c.tool)
		if c.replay == thread.ReplaySafe {
			require.True(t, b.tools.Recover(t.Context(), call, thread.ToolStarted{}).NotDone, c.tool)
		}
	}
}

func TestWrongInput(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ tool, input, says string }{
		{"sudo", `{}`, "the tools are read, write, edit, glob, grep, bash"},
		{"read", `[]`, "does not fit"},
		{"read", ``, "does not fit"},
		{"bash", `{"command":"a"} {"command":"b"}`, "something after"},
		{"read", `{"path":1}`, "path"},
		{"read", `{"path":"a","colour":"red"}`, `unknown field "colour"`},
		{"read", `{}`, "path is missing"},
		{"read", `{"path":"a","offset":-1}`, "positive"},
		{"read", `{"path":"a\u0000b"}`, "NUL"},
		{"read", `{"path":"~/x"}`, `"~" has no meaning`},
		{"read", `{"path":"` + strings.Repeat("a", MaxName+1) + `"}`, "longer than"},
		{"write", `{"path":"a"}`, "content is missing"},
		{"write", `{"content":"a"}`, "path is missing"},
		{"edit", `{"path":"a","old_string":"","new_string":"b"}`, "use write"},
		{"edit", `{"path":"a","old_string":"b","new_string":"b"}`, "the same"},
		{"edit", `{"old_string":"b","new_string":"b"}`, "path is missing"},
		{"glob", `{}`, "pattern is empty"},
		{"glob", `{"pattern":"../*"}`, "use path"},
		{"glob", `{"pattern":"[a"}`, "malformed"},
		{"glob", `{"pattern":"{a,b}{a,b}{a,b}{a,b}{a,b}"}`, "braces"},
		{"glob", `{"pattern":"/x/*","path":"y"}`, "either"},
		{"grep", `{"pattern":""}`, "pattern is empty"},
		{"grep", `{"pattern":"a("}`, "missing closing )"},
		{"grep", `{"pattern":"a","mode":"fast"}`, "mode must be"},
		{"grep", `{"pattern":"a","context":21}`, "between 0 and 20"},
		{"bash", `{}`, "command is missing"},
		{"bash", `{"command":"a\u0000"}`, "NUL"},
		{"bash", `{"command":"a","timeout_ms":-1}`, "positive"},
		{"bash", `{"command":"` + strings.Repeat("a", MaxCommand+1) + `"}`, "limit"},
	} {
		p := b.plan(b.call(c.tool, c.input))
		require.NotNil(t, p.Refused, "%s %.80s", c.tool, c.input)
		require.True(t, p.Refused.IsError)
		require.Contains(t, textOf(p.Refused), c.says)
	}
}

// TestFolderGone: nothing runs elsewhere when the thread's folder is gone, neither found out early nor late.
func TestFolderGone(t *testing.T) {
	b := newBench(t)
	cwd := b.cwd
	late := b.call("bash", bashInput{Command: "pwd"})
	plan := b.plan(late)
	b.cwd = b.path("gone")
	for tool, input := range map[string]any{
		"read": readInput{Path: "a"}, "bash": bashInput{Command: "pwd"}, "glob": globInput{Pattern: "*"},
		"write": map[string]string{"path": "a", "content": "b"},
	} {
		require.Contains(t, b.failure(tool, input), "working folder", tool)
	}
	b.cwd = cwd
	late.Cwd = b.path("gone")
	require.Contains(t, textOf(b.run(late, plan).Result), "working folder")
}
