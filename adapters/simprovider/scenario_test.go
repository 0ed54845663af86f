package simprovider

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every sample scenario can be read.
func TestSampleScenarios(t *testing.T) {
	files, err := filepath.Glob("../../testdata/scenarios/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		_, err = ReadScenario(bytes.NewReader(text))
		require.NoError(t, err, file)
	}
}

// All problems of a scenario are reported at once.
func TestScenarioProblems(t *testing.T) {
	_, err := ReadScenario(strings.NewReader(`{"rules":[
		{"name":"a","text":"(","steps":[]},
		{"name":"b","steps":[{"blocks":[]},{"blocks":[{"type":"text"}]}]},
		{"name":"c","steps":[{"blocks":[{"type":"tool_use"}]},{"blocks":[{"type":"tool_use","name":"x","input":7}]}]},
		{"name":"d","steps":[{"blocks":[{"type":"hologram","raw":{"type":"other"}}],"fault":{"kind":"meteor"}}]}]}`))
	require.ErrorIs(t, err, ErrScenario)
	for _, want := range []string{`"a": text`, `"a": no steps`, `"b": step 0 has no blocks`, `"b": step 1: text block without text`,
		`"c": step 0: tool_use block without a name`, `"c": step 1: tool_use block of x without an input object`,
		`"d": step 0: block of type "hologram" needs raw`, `"d": step 0: fault kind "meteor"`} {
		require.ErrorContains(t, err, want)
	}
	for _, bad := range []string{``, `{}`, `{"rules":[]}`, `{"rule":[]}`, `[]`} {
		_, err := ReadScenario(strings.NewReader(bad))
		require.ErrorIs(t, err, ErrScenario, bad)
	}
}

// play returns the answer of the default scenario to the last message.
func play(t *testing.T, messages string, tools ...string) answer {
	t.Helper()
	for i, name := range tools {
		tools[i] = `{"name":"` + name + `","input_schema":{}}`
	}
	r, bad := parse([]byte(bodyOf(messages, `"tools":[`+strings.Join(tools, ",")+`]`)))
	require.Nil(t, bad)
	a, _ := DefaultScenario().answer(newConversation(r))
	return a
}

// The default scenario does what its help says.
func TestDefaultScenario(t *testing.T) {
	for _, tc := range []struct{ text, tool, input string }{
		{"list", "glob", `{"pattern": "**/*"}`},
		{"ls", "glob", `{"pattern": "**/*"}`},
		{"Read main.go please", "read", `{"path": "main.go"}`},
		{"write a.txt some words\nand \"more\"", "write", `{"path": "a.txt", "content": "some words\nand \"more\"\n"}`},
		{"edit a.txt old new", "read", `{"path": "a.txt"}`},
		{"search for needle", "grep", `{"pattern": "needle"}`},
		{"run echo ${HOME} && ls", "bash", `{"command": "echo ${HOME} && ls"}`},
		{"please fix it", "write", `{"path": "condensate-demo/greet.sh", "content": "#!/bin/sh\n# Greets whoever is named.\necho \"Helo, ${1:-world}!\"\n"}`},
	} {
		text, _ := json.Marshal(tc.text)
		a := play(t, `{"role":"user","content":`+string(text)+`}`, "glob", "read", "write", "edit", "grep", "bash")
		call := a.Blocks[len(a.Blocks)-1]
		require.Equal(t, tc.tool, call.Name, tc.text)
		require.JSONEq(t, tc.input, call.Input, tc.text)
		require.Equal(t, "tool_use", a.StopReason)
	}
	for text, want := range map[string]string{"hello": "Try one of these", "tell me a story": "Once upon a time", "think hard": "I have thought"} {
		a := play(t, `{"role":"user","content":"`+text+`"}`)
		var all string
		for _, b := range a.Blocks {
			all += b.Text
		}
		require.Contains(t, all, want)
		require.Equal(t, "end_turn", a.StopReason)
	}
}

// After its steps a script stops, a new text of the user starts another, and a tool that was not declared is not called.
func TestSteps(t *testing.T) {
	asked := `{"role":"user","content":"run ls"},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"bash","input":{}}]},`
	require.Equal(t, "It says:\n\nok", play(t, asked+userOf(resultOf("t1")), "bash").Blocks[0].Text)
	failed := userOf(`{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":[{"type":"text","text":"no such file"}]}`)
	require.Contains(t, play(t, asked+failed, "bash").Blocks[0].Text, "It failed: no such file")
	long := userOf(`{"type":"tool_result","tool_use_id":"t1","content":"` + strings.Repeat("é", 2000) + `"}`)
	require.Less(t, len(play(t, asked+long, "bash").Blocks[0].Text), maxQuote+100)
	steered := userOf(resultOf("t1"), `{"type":"text","text":"read x"}`)
	require.Equal(t, "read", play(t, asked+steered, "bash", "read").Blocks[1].Name)
	over := asked + userOf(resultOf("t1")) + `,{"role":"assistant","content":"hm"},{"role":"system","content":"go on"}`
	require.Equal(t, "That is all I had to do.", play(t, over, "bash").Blocks[0].Text)
	require.Contains(t, play(t, `{"role":"user","content":"run ls"}`, "read").Blocks[1].Text, "I was not given it")
}

// The faults of a step strike the first attempts of the same body.
func TestScenarioFaults(t *testing.T) {
	s, err := ReadScenario(strings.NewReader(`{"rules":[{"name":"x","messages":0,"steps":[
		{"blocks":[{"type":"text","text":"at last","repeat":2}],"fault":{"kind":"overloaded"},"attempts":2}]}]}`))
	require.NoError(t, err)
	srv := serve(t, Options{Scenario: s})
	for _, want := range []int{529, 529, 200} {
		status, _, text := srv.ask(bodyOf(hello))
		require.Equal(t, want, status, text)
	}
	require.Equal(t, "at lastat last", *srv.message(bodyOf(hello)).Content[0].Text)
	require.Equal(t, "That is all I had to do.", *srv.message(bodyOf(hello + `,{"role":"assistant","content":"x"},` + hello)).Content[0].Text)
}
