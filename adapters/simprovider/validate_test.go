package simprovider

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// bodyOf returns a request with these messages and more top-level fields.
func bodyOf(messages string, more ...string) string {
	return fmt.Sprintf(`{"model":"claude-opus-5-5","max_tokens":4096,"messages":[%s]%s}`, messages, strings.Join(append([]string{""}, more...), ","))
}

const (
	hello  = `{"role":"user","content":"hello"}`
	called = `{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"bash","input":{}},{"type":"tool_use","id":"t2","name":"bash","input":{}}]}`
)

func resultOf(id string) string {
	return fmt.Sprintf(`{"type":"tool_result","tool_use_id":%q,"content":"ok"}`, id)
}

func userOf(blocks ...string) string {
	return `{"role":"user","content":[` + strings.Join(blocks, ",") + `]}`
}

const textBlock = `{"type":"text","text":"hm"}`

// Requests that the provider takes.
func TestValidRequests(t *testing.T) {
	think := fmt.Sprintf(`{"type":"thinking","thinking":"so","signature":%q}`, signature("so"))
	for name, body := range map[string]string{
		"plain":                    bodyOf(hello),
		"two users in a row":       bodyOf(hello + "," + hello),
		"system in between":        bodyOf(hello + `,{"role":"system","content":"note"}`),
		"results, then text":       bodyOf(hello + "," + called + "," + userOf(resultOf("t2"), resultOf("t1"), textBlock)),
		"result with blocks":       bodyOf(hello + `,{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"b","input":{}}]},` + userOf(`{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"x"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]}`)),
		"result without content":   bodyOf(hello + `,{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"b","input":{}}]},` + userOf(`{"type":"tool_result","tool_use_id":"t1"}`)),
		"our own thinking":         bodyOf(hello + `,{"role":"assistant","content":[` + think + `,` + textBlock + `]},` + hello),
		"unknown block":            bodyOf(userOf(`{"type":"hologram","x":1}`)),
		"surrogate pair":           bodyOf(`{"role":"user","content":"\ud83d\ude00 \\ud800"}`),
		"four markers":             bodyOf(userOf(marked("5m"), marked("5m"), marked("5m"), textBlock), `"cache_control":{"type":"ephemeral"}`),
		"top marker on marked one": bodyOf(userOf(marked("1h"), marked("1h"), marked("1h"), marked("1h")), `"cache_control":{"type":"ephemeral","ttl":"1h"}`),
		"long before short":        bodyOf(userOf(marked("1h"), marked("5m"))),
		"all fields":               bodyOf(hello, `"metadata":{"user_id":"u"}`, `"diagnostics":{"previous_message_id":null}`, `"temperature":1`, `"stop_sequences":["x"]`, `"output_config":{"effort":"high"}`, `"system":[{"type":"text","text":"s"}]`),
	} {
		t.Run(name, func(t *testing.T) {
			r, err := parse([]byte(body))
			require.Nil(t, err)
			require.Nil(t, r.validate())
		})
	}
}

func marked(ttl string) string {
	return fmt.Sprintf(`{"type":"text","text":"m","cache_control":{"type":"ephemeral","ttl":%q}}`, ttl)
}

// Requests that the provider refuses, in its words.
func TestInvalidRequests(t *testing.T) {
	big := strings.Repeat("A", MaxImage+4)
	for name, tc := range map[string]struct{ body, want string }{
		"not JSON":         {`{`, "The request body is not valid JSON: unexpected end of JSON input"},
		"half a pair":      {bodyOf(`{"role":"user","content":"\ud83d"}`), "no low surrogate in string"},
		"invalid UTF-8":    {bodyOf("{\"role\":\"user\",\"content\":\"\xff\"}"), "not valid JSON"},
		"unknown field":    {bodyOf(hello, `"nope":1`), "nope: Extra inputs are not permitted"},
		"no model":         {`{"max_tokens":1,"messages":[` + hello + `]}`, "model: Field required"},
		"no max_tokens":    {`{"model":"m","messages":[` + hello + `]}`, "max_tokens: Field required"},
		"zero max_tokens":  {`{"model":"m","max_tokens":0,"messages":[` + hello + `]}`, "max_tokens: Input should be greater than or equal to 1"},
		"max_tokens text":  {`{"model":"m","max_tokens":"9","messages":[` + hello + `]}`, "max_tokens: Input should be a valid value"},
		"no messages":      {`{"model":"m","max_tokens":1}`, "messages: Field required"},
		"empty messages":   {bodyOf(""), "messages: at least one message is required"},
		"messages text":    {`{"model":"m","max_tokens":1,"messages":"x"}`, "messages: Input should be a valid list"},
		"wrong role":       {bodyOf(hello + `,{"role":"tool","content":"x"},` + hello), "messages.1.role: Input should be 'user', 'assistant' or 'system'"},
		"assistant first":  {bodyOf(`{"role":"assistant","content":"x"},` + hello), `messages: first message must use the "user" role`},
		"prefill":          {bodyOf(hello + `,{"role":"assistant","content":"x"}`), "This model does not support assistant message prefill"},
		"no content":       {bodyOf(`{"role":"user"}`), "messages.0.content: Field required"},
		"empty content":    {bodyOf(`{"role":"user","content":""}`), "messages.0: all messages must have non-empty content"},
		"empty list":       {bodyOf(`{"role":"user","content":[]}`), "messages.0: all messages must have non-empty content"},
		"empty text":       {bodyOf(userOf(`{"type":"text","text":""}`)), "messages: text content blocks must be non-empty"},
		"blank text":       {bodyOf(userOf(`{"type":"text","text":" \n"}`)), "messages: text content blocks must contain non-whitespace text"},
		"empty in result":  {bodyOf(hello + `,{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"b","input":{}}]},` + userOf(`{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":""}]}`)), "messages: text content blocks must be non-empty"},
		"empty system":     {bodyOf(hello, `"system":[{"type":"text","text":""}]`), "system: text content blocks must be non-empty"},
		"orphan result":    {bodyOf(userOf(resultOf("t9"))), "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: t9."},
		"result too late":  {bodyOf(hello + "," + called + "," + userOf(resultOf("t1"), resultOf("t2")) + `,{"role":"assistant","content":"x"},` + userOf(resultOf("t1"))), "messages.4.content.0: unexpected `tool_use_id` found"},
		"result missing":   {bodyOf(hello + "," + called + "," + userOf(resultOf("t1"))), "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: t2."},
		"results missing":  {bodyOf(hello + "," + called + "," + hello), "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: t1, t2."},
		"text before":      {bodyOf(hello + "," + called + "," + userOf(textBlock, resultOf("t1"), resultOf("t2"))), "ids were found without `tool_result` blocks immediately after: t1, t2."},
		"result twice":     {bodyOf(hello + "," + called + "," + userOf(resultOf("t1"), resultOf("t1"), resultOf("t2"))), "messages.2.content.1: each tool_use must have a single result. Found multiple `tool_result` blocks with id: t1"},
		"call id twice":    {bodyOf(hello + `,{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"b","input":{}},{"type":"tool_use","id":"t","name":"b","input":{}}]},` + userOf(resultOf("t"))), "messages.1.content.1: `tool_use` ids must be unique"},
		"call by the user": {bodyOf(userOf(`{"type":"tool_use","id":"t","name":"b","input":{}}`) + "," + userOf(resultOf("t"))), "`tool_use` blocks can only be in `assistant` messages"},
		"input no object":  {bodyOf(hello + `,{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"b","input":"x"}]},` + userOf(resultOf("t"))), "messages.1.content.0.tool_use.input: Input should be a valid dictionary"},
		"image too big":    {bodyOf(userOf(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + big + `"}}`)), "messages.0.content.0.image.source.base64: image exceeds 5 MB maximum: 5242884 bytes > 5242880 bytes"},
		"image of a kind":  {bodyOf(userOf(`{"type":"image","source":{"type":"base64","media_type":"image/bmp","data":"AA"}}`)), "image.source.base64.media_type"},
		"forged thinking":  {bodyOf(hello + `,{"role":"assistant","content":[{"type":"thinking","thinking":"so","signature":"Zm9v"},` + textBlock + `]},` + hello), "messages.1.content.0: Invalid `signature` in `thinking` block"},
		"thinking dropped": {bodyOf(hello+","+called+","+userOf(resultOf("t1"), resultOf("t2")), `"thinking":{"type":"enabled","budget_tokens":2000}`), "Expected `thinking` or `redacted_thinking`, but found `tool_use`"},
		"budget too big":   {bodyOf(hello, `"thinking":{"type":"enabled","budget_tokens":4096}`), "`max_tokens` must be greater than `thinking.budget_tokens`"},
		"budget too small": {bodyOf(hello, `"thinking":{"type":"enabled","budget_tokens":10}`), "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"},
		"tool name":        {bodyOf(hello, `"tools":[{"name":"a b","input_schema":{}}]`), "tools.0.custom.name: String should match pattern"},
		"tool twice":       {bodyOf(hello, `"tools":[{"name":"a","input_schema":{}},{"name":"a","input_schema":{}}]`), "tools: Tool names must be unique."},
		"no schema":        {bodyOf(hello, `"tools":[{"name":"a"}]`), "tools.0.custom.input_schema: Field required"},
		"five markers":     {bodyOf(userOf(marked("5m"), marked("5m"), marked("5m"), marked("5m"), textBlock), `"cache_control":{"type":"ephemeral"}`), "A maximum of 4 blocks with cache_control may be provided. Found 5."},
		"short then long":  {bodyOf(userOf(marked("5m"), marked("1h"))), "messages.0.content.1.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m'"},
		"marker lifetime":  {bodyOf(userOf(marked("9m"))), "messages.0.content.0.cache_control.ephemeral.ttl: Input should be '5m' or '1h'"},
		"marker type":      {bodyOf(hello, `"cache_control":{"type":"eternal"}`), "cache_control.type: Input should be 'ephemeral'"},
		"marked thinking":  {bodyOf(hello + `,{"role":"assistant","content":[{"type":"thinking","thinking":"so","signature":"` + signature("so") + `","cache_control":{"type":"ephemeral"}},` + textBlock + `]},` + hello), "messages.1.content.0.thinking.cache_control: Extra inputs are not permitted"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := parse([]byte(tc.body))
			if err == nil {
				err = r.validate()
			}
			require.NotNil(t, err)
			require.Equal(t, "invalid_request_error", err.Type)
			require.Equal(t, 400, err.Status)
			require.Contains(t, err.Message, tc.want)
		})
	}
}

// FuzzRequest: no body makes the provider panic, and what it accepts it can lay out.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(bodyOf(hello + "," + called + "," + userOf(resultOf("t1"), resultOf("t2"), marked("5m")))))
	f.Add([]byte(bodyOf(hello, `"system":"s"`, `"tools":[{"name":"a","input_schema":{},"cache_control":{"type":"ephemeral"}}]`)))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, bad := parse(body)
		if bad != nil || r.validate() != nil {
			return
		}
		p := newPrompt(r, "account")
		require.Len(t, p.sum, len(p.chain))
		answer, _ := DefaultScenario().answer(newConversation(r))
		for i := range answer.Blocks {
			require.True(t, json.Valid(answer.Blocks[i].native()))
		}
	})
}
