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
	small := []int{0, 1, 8<<10 - 2, 8<<10 - 1, 8 << 10, 8<<10 + 1, 0, 3}
	all := append([]int{64<<10 - 1, 64 << 10, 64<<10 + 1, 200_000}, small...)
	readLines(t, all, func(r io.Reader) io.Reader { return r })
	readLines(t, all, iotest.HalfReader)
	readLines(t, all, iotest.DataErrReader)
	readLines(t, small, iotest.OneByteReader)
}

// readLines reads lines of those lengths.
func readLines(t *testing.T, lengths []int, wrap func(io.Reader) io.Reader) {
	t.Helper()
	var text strings.Builder
	for _, n := range lengths {
		text.WriteString(strings.Repeat("x", n) + "\n")
	}
	l := record.NewLineReader(wrap(strings.NewReader(text.String())))
	offset := int64(0)
	for _, n := range lengths {
		require.Equal(t, offset, l.Offset())
		got, err := l.Next()
		require.NoError(t, err)
		require.Equal(t, n, len(got))
		require.Equal(t, n, bytes.Count(got, []byte("x")))
		offset += int64(n) + 1
	}
	for range 2 {
		_, err := l.Next()
		require.Equal(t, io.EOF, err)
	}
	require.Equal(t, int64(text.Len()), l.Offset())
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
