package record_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
)

const (
	nameA = `"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"`
	nameB = `"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`
)

func deep(n int) string {
	return `{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`
}

func keys(n int, last string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		fmt.Fprintf(&b, `"k%d":%d,`, i, i)
	}
	return b.String() + last + "}"
}

var goodBodies = []string{
	`{}`, `{"a":1}`, `{"a":{"a":{"a":null}},"b":[[],{},[{}]],"c":[true,false,null]}`,
	`{"":0}`, `{"a":-0,"b":0.5e+10,"c":1E-5,"d":123456789012345678901234567890,"e":-1.0}`,
	`{"a":"\"\\\/\b\f\n\r\t\u0000\u00e9\ud83d\ude42\uD83D\uDE42"}`,
	"{\"a\":\"\u2028\u2029\u00e9\U0001f642\x7f\ufffd\"}", `{"\u0061b":1,"ac":2,"é":3,"É":4}`,
	`{"a":" spaces : , inside "}`, `{"blobs":[` + nameA + `,` + nameB + `],"a":{"blobs":1}}`,
	`{"a":[{"blobs":[]}]}`, deep(record.MaxDepth), keys(40, `"k40":0`), `{"12345678":"12345678","1234567":"\\"}`,
}

var badBodies = []string{
	``, `{`, `}`, `[]`, `1`, `"a"`, `null`, `{}x`, `{}{}`, "{}\n", ` {}`, `{} `, `{ }`, `{"a" :1}`, `{"a": 1}`, `{"a":1 }`, "{\"a\":1,\n\"b\":2}", "{\"a\":\t1}",
	`{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{a:1}`, `{"a":1 "b":2}`, `{"a":1"b":2}`, `{"a":[1,]}`, `{"a":[,1]}`, `{"a":[1 2]}`, `{"a":[1}`, `{"a":{]}`, `{1:2}`,
	`{"a":tru}`, `{"a":nul`, `{"a":True}`, `{"a":NaN}`, `{"a":undefined}`, `{'a':1}`,
	`{"a":01}`, `{"a":+1}`, `{"a":.5}`, `{"a":1.}`, `{"a":1e}`, `{"a":1e+}`, `{"a":-}`, `{"a":0x1}`, `{"a":1.e5}`, `{"a":--1}`, `{"a":-a}`,
	`{"a":"`, `{"a":"b}`, `{"a":"\"}`, `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"\u12g4"}`, `{"a":"\U0041"}`, `{"a":"\`, "{\"a\":\"\x00\"}", "{\"a\":\"\n\"}", "{\"a\":\"12345678\x1f\"}",
	`{"a":"\ud83d"}`, `{"a":"\ude42"}`, `{"a":"\ud83dx"}`, `{"a":"\ud83d\n"}`, `{"a":"\ud83d\ud83d"}`, `{"\ud83d":1}`, `{"a":"\ud83d\ude4"}`, `{"a":"\ud83d\ue000"}`, `{"a":"\ud83d\udbff"}`, `{"a":"\ud83dxxxxxx"}`,
	"{\"a\":\"\xff\"}", "{\"a\":\"\xc3\"}", "{\"a\":\"\xed\xa0\x80\"}", "{\"a\":\"\xc0\x80\"}", "{\"a\xe9\":1}", "\xef\xbb\xbf{}",
	`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"\u0061":1,"a":2}`, `{"b":{"a":1,"a":1}}`, `{"b":[{"a":1,"c":{},"a":1}]}`, `{"\n":1,"\u000a":1}`, `{"\ud83d\ude42":1,"🙂":1}`, `{"\/":1,"/":1}`,
	keys(40, `"k3":0`), keys(40, `"k39":0`), keys(16, `"k0":0`), keys(15, `"k14":0`), keys(40, `"\u006b3":0`),
	deep(record.MaxDepth + 1), `{"a":` + strings.Repeat(`{"a":`, record.MaxDepth) + `1` + strings.Repeat(`}`, record.MaxDepth) + `}`,
	`{"blobs":[]}`, `{"blobs":{}}`, `{"blobs":null}`, `{"blobs":"` + nameA + `"}`, `{"blobs":[1]}`, `{"blobs":[` + nameA + `,]}`, `{"blobs":[` + nameA + `,` + nameA + `]}`,
	`{"blobs":[` + strings.ToUpper(nameA) + `]}`, `{"blobs":["sha256:00"]}`, `{"blobs":[` + nameA, `{"blobs":[` + nameA + `}`, `{"blobs":[` + strings.Replace(nameA, "b", `\u0062`, 1) + `]}`,
	`{"a":1,"blobs":[` + nameA + `]}`, `{"\u0062lobs":[` + nameA + `]}`, `{"blobs":[` + nameA + `],"blobs":[` + nameB + `]}`,
}

func TestCheckBody(t *testing.T) {
	for _, body := range goodBodies {
		require.NoError(t, record.CheckBody([]byte(body)), body)
		require.True(t, strict([]byte(body)), body)
	}
	for _, body := range badBodies {
		require.ErrorIs(t, record.CheckBody([]byte(body)), record.ErrInvalidEntry, body)
		require.False(t, strict([]byte(body)), body)
	}
	// Every place where a body may end too early, or be followed by something.
	for _, body := range goodBodies {
		for i := range body {
			require.Error(t, record.CheckBody([]byte(body[:i])), body[:i])
		}
		require.Error(t, record.CheckBody([]byte(body+"}")), body)
	}
}

// TestCheckBodyPlace shows that the error names the place.
func TestCheckBodyPlace(t *testing.T) {
	for body, at := range map[string]int{
		`{"a":1,"b":2,"a":3}`: 13, "{\"a\":\"\xff\"}": 6, `{"a":"b\x"}`: 7, "{\"a\":\"b\n\"}": 7, `{"a":[1, 2]}`: 8, `[]`: 0,
		`{"a":1,"blobs":[` + nameA + `]}`: 7,
	} {
		require.ErrorContains(t, record.CheckBody([]byte(body)), fmt.Sprintf("body byte %d:", at), body)
	}
}

// TestManyKeys shows that long lists of keys and of blobs are read.
func TestManyKeys(t *testing.T) {
	body := []byte(keys(20_000, `"last":0`))
	require.NoError(t, record.CheckBody(body))
	names := make([]string, 5_000)
	for i := range names {
		names[i] = `"` + record.NewBlob(fmt.Append(nil, i)).Ref() + `"`
	}
	list := `{"blobs":[` + strings.Join(names, ",") + `]}`
	require.NoError(t, record.CheckBody([]byte(list)))
	require.Len(t, record.ListedBlobs([]byte(list)), len(names))
}

func TestListedBlobs(t *testing.T) {
	a, b := record.NewBlob([]byte("abc")).Digest, record.NewBlob(nil).Digest
	require.Nil(t, record.ListedBlobs([]byte(`{"a":1}`)))
	require.Nil(t, record.ListedBlobs(nil))
	require.Equal(t, []record.Digest{a}, record.ListedBlobs([]byte(`{"blobs":[`+nameA+`]}`)))
	require.Equal(t, []record.Digest{b, a}, record.ListedBlobs([]byte(`{"blobs":[`+nameB+`,`+nameA+`],"c":1}`)))
}

var (
	surrogate = regexp.MustCompile(`\\u[dD][89a-fA-F][0-9a-fA-F]{2}`)
	pair      = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`)
	escaped   = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)
)

// strict is what CheckBody promises, said with encoding/json: slowly, and by other means.
func strict(body []byte) bool {
	var compact bytes.Buffer
	if !utf8.Valid(body) || !json.Valid(body) || json.Compact(&compact, body) != nil || !bytes.Equal(compact.Bytes(), body) {
		return false
	}
	// Lone surrogates: what stays of the surrogates when the pairs are gone. An escaped backslash is no start of one.
	plain := strings.ReplaceAll(string(body), `\\`, "")
	if surrogate.MatchString(pair.ReplaceAllString(plain, "")) {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	depth, ok := walk(d, 0)
	if !ok || depth > record.MaxDepth || body[0] != '{' {
		return false
	}
	var top struct{ Blobs json.RawMessage }
	var all map[string]json.RawMessage
	if json.Unmarshal(body, &all) != nil {
		return false
	}
	if top.Blobs, ok = all["blobs"]; !ok {
		return true
	}
	var names []string
	if json.Unmarshal(top.Blobs, &names) != nil || len(names) == 0 || !bytes.HasPrefix(body, append([]byte(`{"blobs":`), top.Blobs...)) || escaped.Match(top.Blobs) {
		return false
	}
	seen := make(map[string]bool)
	for _, name := range names {
		if _, err := record.ParseBlobRef(name); err != nil || seen[name] {
			return false
		}
		seen[name] = true
	}
	return true
}

// walk reads one value and returns its depth; ok is false for an object with a key twice.
func walk(d *json.Decoder, depth int) (deepest int, ok bool) {
	token, err := d.Token()
	if err != nil {
		return depth, err == io.EOF
	}
	delim, nested := token.(json.Delim)
	if !nested {
		return depth, true
	}
	depth++
	deepest = depth
	seen := make(map[string]bool)
	for d.More() {
		if delim == '{' {
			key, err := d.Token()
			if err != nil || seen[key.(string)] {
				return depth, false
			}
			seen[key.(string)] = true
		}
		inner, ok := walk(d, depth)
		if !ok {
			return depth, false
		}
		deepest = max(deepest, inner)
	}
	_, err = d.Token()
	return deepest, err == nil
}

// FuzzCheckBody holds the strict scan against encoding/json.
func FuzzCheckBody(f *testing.F) {
	for _, body := range append(goodBodies, badBodies...) {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		err := record.CheckBody(body)
		if want := strict(body); (err == nil) != want {
			t.Fatalf("%q: got %v, want strict %v", body, err, want)
		}
	})
}
