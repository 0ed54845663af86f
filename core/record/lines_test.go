package record_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
)

// TestLineReader reads lines of every length around the sizes of the buffer, in pieces of every kind.
func TestLineReader(t *testing.T) {
	var want []string
	for _, n := range []int{0, 1, 8<<10 - 2, 8<<10 - 1, 8 << 10, 8<<10 + 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 200_000, 0, 3} {
		want = append(want, strings.Repeat("x", n))
	}
	text := strings.Join(want, "\n") + "\n"
	for name, r := range map[string]io.Reader{
		"whole":      strings.NewReader(text),
		"halves":     iotest.HalfReader(strings.NewReader(text)),
		"with error": iotest.DataErrReader(strings.NewReader(text)),
		"one byte":   iotest.OneByteReader(strings.NewReader(text)),
	} {
		l := record.NewLineReader(r)
		offset := int64(0)
		for i, line := range want {
			require.Equal(t, offset, l.Offset(), name)
			got, err := l.Next()
			require.NoError(t, err, name)
			require.True(t, string(got) == line, "%s: line %d has %d bytes, want %d", name, i, len(got), len(line))
			offset += int64(len(line)) + 1
		}
		for range 2 {
			_, err := l.Next()
			require.Equal(t, io.EOF, err, name)
		}
		require.Equal(t, int64(len(text)), l.Offset())
	}
}

func TestLineReaderEnds(t *testing.T) {
	l := record.NewLineReader(strings.NewReader("one\ntwo"))
	_, err := l.Next()
	require.NoError(t, err)
	torn, err := l.Next()
	require.ErrorIs(t, err, record.ErrTorn)
	require.Equal(t, "two", string(torn))

	broken := errors.New("broken pipe")
	l = record.NewLineReader(io.MultiReader(strings.NewReader("one\ntw"), iotest.ErrReader(broken)))
	_, err = l.Next()
	require.NoError(t, err)
	_, err = l.Next()
	require.ErrorIs(t, err, broken)

	l = record.NewLineReader(nothing{})
	_, err = l.Next()
	require.ErrorIs(t, err, io.ErrNoProgress)
}

// nothing never gives anything.
type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

// endless gives a line without an end and counts its bytes.
type endless struct {
	start string
	n     int
}

func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.start)
	e.start = e.start[n:]
	for i := n; i < len(b); i++ {
		b[i] = 'x'
	}
	e.n += len(b)
	return len(b), nil
}

// TestLineTooLong shows that a line over its limit is an error, not memory.
func TestLineTooLong(t *testing.T) {
	for start, limit := range map[string]int{
		`{"v":0,"thread":"`:              record.MaxLine,
		`{"v":0,"blob":"sha256:`:         record.MaxBlobLine,
		`{"v":0,"blob":"sha512:`:         record.MaxLine,
		`{"v":0,"head":{"thread":"thr_x`: record.MaxLine,
	} {
		for _, n := range []int{limit - 1, limit} {
			line := append([]byte(start), bytes.Repeat([]byte("x"), n-len(start))...)
			_, err := record.NewLineReader(bytes.NewReader(append(line, '\n'))).Next()
			if n < limit {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, record.ErrLineTooLong)
			}
		}
		e := &endless{start: start}
		_, err := record.NewLineReader(e).Next()
		require.ErrorIs(t, err, record.ErrLineTooLong)
		require.LessOrEqual(t, e.n, 2*limit, "it stopped reading")
	}
}
