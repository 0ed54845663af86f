package rawjson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// The escaping rule, character by character: frozen.
func TestQuoteIsFrozen(t *testing.T) {
	for text, want := range map[string]string{
		"":                                `""`,
		`say "hi" \ /`:                    `"say \"hi\" \\ /"`,
		"\b\f\n\r\t":                      `"\b\f\n\r\t"`,
		"\x00\x01\x1b\x1f\x7f":            `"\u0000\u0001\u001b\u001f` + "\x7f\"",
		"<&>\u00e9\u2028\u2029\U0001f600": "\"<&>\u00e9\u2028\u2029\U0001f600\"",
		"a\xffb\xc3":                      "\"a\ufffdb\ufffd\"",
		"\xed\xa0\x80":                    "\"\ufffd\ufffd\ufffd\"", // half a surrogate pair in UTF-8
	} {
		require.Equal(t, want, string(Quote(text)), "%q", text)
		require.Equal(t, want, string(Quote([]byte(text))), "%q", text)
	}
}

// A literal is read whoever wrote it; half a surrogate pair is U+FFFD.
func TestText(t *testing.T) {
	for lit, want := range map[string]string{
		`"plain"`:               "plain",
		`"\/\u002f\u0041"`:      "//A",
		`"\u0022\u005c\u005C"`:  `"\\`,
		`"\u0000\u0008\n"`:      "\x00\b\n",
		`"\u2028\u00e9\\u2028"`: "\u2028\u00e9\\u2028",
		`"\ud83d\ude00"`:        "\U0001f600",
		`"\ud83d"`:              "\ufffd",
		`"\ude00\ud83dx"`:       "\ufffd\ufffdx",
		`"\ud83d\u0041"`:        "\ufffdA",
		`"a\"b\\"`:              `a"b\`,
	} {
		text, ok := Text([]byte(lit))
		require.True(t, ok)
		require.Equal(t, want, string(text), lit)
	}
	for _, value := range []string{"", "null", "7", `"`, `{}`} {
		_, ok := Text([]byte(value))
		require.False(t, ok, value)
	}
}

func TestFields(t *testing.T) {
	var got []string
	err := Fields([]byte(`{"a":"x\\\"}","b":[1,{"c":"]"}],"d":-1.5e+3 , "e":null,"f":{}}`), func(key, value []byte) {
		got = append(got, fmt.Sprintf("%s=%s", key, value))
	})
	require.NoError(t, err)
	require.Equal(t, []string{`a="x\\\"}"`, `b=[1,{"c":"]"}]`, `d=-1.5e+3`, `e=null`, `f={}`}, got)
}

// elements reads an array.
func elements(b []byte, f func(value []byte)) error {
	c := NewCursor(b)
	c.Elements(func() { f(c.Value()) })
	return c.End()
}

func TestElements(t *testing.T) {
	for in, want := range map[string][]string{
		`null`: nil, `[]`: nil, ` [ ] `: nil, `["a",2,[3]]`: {`"a"`, `2`, `[3]`},
	} {
		var got []string
		require.NoError(t, elements([]byte(in), func(v []byte) { got = append(got, string(v)) }), in)
		require.Equal(t, want, got, in)
	}
}

// What is no object or array is refused, never read past its end.
func TestSyntaxErrors(t *testing.T) {
	for _, in := range []string{
		``, `x`, `{`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":}`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{a:1}`, `{"a" 1}`,
		`{"a":"\"}`, `{"a":{}`, `{"a":[}`, `{}x`, `{"a":1}}`, `[]`, `"a"`, `{"a":1;"b":2}`,
	} {
		require.ErrorIs(t, Fields([]byte(in), func(_, _ []byte) {}), ErrSyntax, "%s", in)
	}
	for _, in := range []string{``, `{}`, `[`, `[1`, `[1,`, `[1,]`, `[,]`, `[1]]`, `"a"`, `[1 2]`, "[\x00]"} {
		require.ErrorIs(t, elements([]byte(in), func([]byte) {}), ErrSyntax, "%s", in)
	}
}

// A Writer gathers small parts and passes large ones through; both arrive in order and are counted.
func TestWriter(t *testing.T) {
	big := strings.Repeat("b\n", 5000)
	image := bytes.Repeat([]byte{0, 1, 2, 255}, 3333)
	var out bytes.Buffer
	w := NewWriter(&out)
	w.Raw(`{"n":`)
	w.Int(42)
	for i := range 300 {
		w.Raw(fmt.Sprintf(`,"k%d":`, i))
		w.String("small \u2028")
	}
	w.Raw(`,"big":`)
	w.Bytes(Quote(big))
	w.Raw(`,"image":`)
	w.Base64(image)
	w.Raw(`}`)
	require.NoError(t, w.Flush())
	require.EqualValues(t, out.Len(), w.Len())

	var doc map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &doc))
	require.Len(t, doc, 303)
	require.Equal(t, big, doc["big"])
	require.Equal(t, base64.StdEncoding.EncodeToString(image), doc["image"])
	require.Equal(t, "small \u2028", doc["k299"])
}

type failing struct{ after int }

func (f *failing) Write(b []byte) (int, error) {
	if f.after -= len(b); f.after < 0 {
		return 0, bytes.ErrTooLarge
	}
	return len(b), nil
}

func TestWriterKeepsFirstError(t *testing.T) {
	w := NewWriter(&failing{after: 10})
	for range 4 {
		w.Raw(strings.Repeat("x", bufSize))
	}
	require.ErrorIs(t, w.Flush(), bytes.ErrTooLarge)
	require.ErrorIs(t, w.Flush(), bytes.ErrTooLarge)
}

// FuzzQuote holds our encoder against encoding/json: the same meaning, valid and minimal.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a\"\\/", "\x00\x1f\x7f", "\u2028\u2029\ufffd", "\xff\xc3(", "\xed\xa0\x80", "\U0010ffff"} {
		f.Add(s)
	}
	f.Add(strings.Repeat("\\\"", 1000))
	f.Fuzz(func(t *testing.T, s string) {
		lit := Quote(s)
		var back string
		require.NoError(t, json.Unmarshal(lit, &back))
		require.Equal(t, strings.ToValidUTF8(s, "\ufffd") == s, back == s)
		reference, err := json.Marshal(s)
		require.NoError(t, err)
		var want string
		require.NoError(t, json.Unmarshal(reference, &want))
		require.Equal(t, want, back)
		require.True(t, utf8.Valid(lit))
		var runes []rune
		for r := range Runes(lit) {
			runes = append(runes, r)
		}
		require.Equal(t, []rune(want), append([]rune{}, runes...))
	})
}

// FuzzLiteral holds the reader of literals against encoding/json for every valid one.
func FuzzLiteral(f *testing.F) {
	for _, s := range []string{`""`, `"\u0000\ud83d\ude00\ud83d"`, `"\/\b\f\n\r\t\"\\"`, `"\ud83d\ud83d\ude00"`, `"\uD83D\uDE00"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, lit []byte) {
		var want string
		if json.Unmarshal(lit, &want) != nil || !utf8.Valid(lit) || bytes.TrimSpace(lit)[0] != '"' {
			return
		}
		lit = bytes.TrimSpace(lit)
		text, ok := Text(lit)
		require.True(t, ok)
		require.Equal(t, want, string(text))
	})
}

// FuzzFields holds the walker against encoding/json: on an object it finds the same fields, on other bytes it does
// not panic.
func FuzzFields(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":{"b":["]","}"]},"c":"\\\""}`, `{"a":1,"a":2}`, `{"\u0061":1}`, `[{}`, `{"a":"`, `{"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		got := make(map[string]json.RawMessage)
		err := Fields(doc, func(key, value []byte) {
			text, _ := Text([]byte(`"` + string(key) + `"`))
			got[string(text)] = bytes.Clone(value)
		})
		_ = elements(doc, func([]byte) {})
		var want map[string]json.RawMessage
		if json.Unmarshal(doc, &want) != nil || !utf8.Valid(doc) || want == nil {
			return
		}
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}
