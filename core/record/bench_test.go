package record_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// long returns an unsigned export of n messages whose bodies have about size bytes.
func long(t testing.TB, n, size int) []byte {
	w := recordtest.NewWriter(1)
	var out bytes.Buffer
	for i := range n {
		kind := record.MessageAccepted
		if i == 0 {
			kind = record.ThreadCreated
		}
		words := strings.Repeat("some words, and a line\\n", size/24)
		e := w.Seal(t, kind, fmt.Sprintf(`{"id":"msg_%026d","mode":"queue","content":[{"type":"text","text":"%s"}]}`, i, words))
		out.Write(e.Line)
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// BenchmarkVerify prints how fast exports verify, and the share of the speed at which SHA-256 alone hashes the same
// bytes.
func BenchmarkVerify(b *testing.B) {
	for _, size := range []int{80, 512, 4 << 10, 64 << 10} {
		export := long(b, max(20, 4<<20/(size+500)), size)
		b.Run(fmt.Sprintf("body=%d", size), func(b *testing.B) {
			b.SetBytes(int64(len(export)))
			b.ReportAllocs()
			var r record.Report
			for b.Loop() {
				var err error
				r, err = record.VerifyExport(bytes.NewReader(export), record.VerifyOptions{Unsigned: true}, nil)
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(r.Entries), "ns/entry")
		})
	}
	b.Run("sha256", func(b *testing.B) {
		data := make([]byte, 4<<20)
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			sha256.Sum256(data)
		}
	})
}

// BenchmarkCheckBody prints the speed of the check that each append makes.
func BenchmarkCheckBody(b *testing.B) {
	for name, body := range map[string]string{
		"text":   `{"content":[{"type":"text","text":"` + strings.Repeat("some words, and more of them ", 140) + `"}]}`,
		"tokens": `{"list":[` + strings.Repeat(`{"type":"text","n":12.5e3,"ok":true},`, 100) + `null]}`,
		"umlaut": `{"text":"` + strings.Repeat("größere Wörter überall ", 180) + `"}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, record.CheckBody([]byte(body)))
			}
		})
	}
}
