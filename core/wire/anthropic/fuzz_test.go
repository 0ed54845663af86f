package anthropic_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/wire/builder"
	"condensate.dev/cnd/core/wire/wiretest"
)

// FuzzBodies feeds bodies that no program of ours writes: whatever a record holds, building does not panic, and what
// comes out is JSON.
func FuzzBodies(f *testing.F) {
	kinds := []record.Kind{
		record.MessageAccepted, record.MessagePlaced, record.AnswerFinished, record.AnswerAborted, record.ToolFinished,
		record.ToolUnknown, record.NoteInjected, record.HistoryRepaired, record.StepUndone,
	}
	for i, body := range []string{
		`{"id":"m","content":[{"type":"text","text":"x"},{"type":"text"},{"type":7},{"type":"image","blob":"sha256:0"}]}`,
		`{"id":"m","accepted":2,"turn":""}`,
		`{"native":[{"json":{"type":"tool_use","id":"t"}},{"text":"{}"},{"text":"{"},{},{"json":[]}],"view":[{"type":"tool_call","call":"1.0"}]}`,
		`{"cause":"interrupt","native":[{"json":{"type":"thinking"}}],"text":"x"}`,
		`{"call":"1.0","content":[{"type":"text","text":"r"}],"is_error":true}`,
		`{"call":"1.0","cause":"crash"}`, `{"text":"n"}`, `{"target":2,"block":0,"repair":"drop-block"}`, `{"from":0,"to":9}`,
	} {
		f.Add(uint8(i), []byte(body))
	}
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		if record.CheckBody(body) != nil {
			return
		}
		th := begin(t)
		th.Message(wiretest.Text("hi"))
		th.Request()
		th.Answer(useA)
		th.Accept(wiretest.Text("later"))
		var out bytes.Buffer
		b, err := builder.Open(t.Context(), th, th.Lines[1], &out)
		require.NoError(t, err)
		for _, e := range th.Lines[2:] {
			require.NoError(t, b.Add(t.Context(), e))
		}
		k := kinds[int(kind)%len(kinds)]
		err = b.Add(t.Context(), record.Entry{Seq: th.Head().Next(), Kind: k, Body: body})
		if err != nil {
			return
		}
		b.Problems()
		tail, err := b.Close()
		require.NoError(t, err)
		require.True(t, json.Valid(append(out.Bytes(), tail.Bytes...)), "%s", out.Bytes())
	})
}
