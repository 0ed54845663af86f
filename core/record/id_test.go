package record_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
)

// TestNewID holds ids against the UUIDv7 of RFC 9562, appendix A.6, and the bounds, converted by hand.
func TestNewID(t *testing.T) {
	for _, c := range []struct {
		uuid    string
		ms      int64
		entropy string
		id      string
	}{
		{"017f22e2-79b0-7cc3-98c4-dc0c0c07398f", 1645557742000, "\x0c\xc3\x18\xc4\xdc\x0c\x0c\x07\x39\x8f", "01fwhe4ydgfk1shh6w1g60eecf"},
		{"00000000-0000-7000-8000-000000000000", 0, strings.Repeat("\x00", 10), "0000000000e008000000000000"},
		{"ffffffff-ffff-7fff-bfff-ffffffffffff", 1<<48 - 1, strings.Repeat("\xff", 10), "7zzzzzzzzzfzzvzzzzzzzzzzzz"},
	} {
		id, err := record.NewID(record.PrefixThread, time.UnixMilli(c.ms), strings.NewReader(c.entropy))
		require.NoError(t, err)
		require.Equal(t, "thr_"+c.id, id, c.uuid)
		_, err = record.ParseThreadID(id)
		require.NoError(t, err)
	}

	_, err := record.NewID("msg_", time.UnixMilli(1), strings.NewReader("short"))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	broken := errors.New("no dice")
	_, err = record.NewID("msg_", time.UnixMilli(1), iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
	for _, ms := range []int64{-1, 1 << 48} {
		_, err = record.NewID("msg_", time.UnixMilli(ms), bytes.NewReader(make([]byte, 10)))
		require.ErrorIs(t, err, record.ErrInvalidID)
	}
}

// TestIDsSort shows that a later id sorts after an earlier one.
func TestIDsSort(t *testing.T) {
	last := ""
	for ms := int64(1); ms < 1<<48; ms = ms*3 + 1 {
		id, err := record.NewID("trn_", time.UnixMilli(ms), bytes.NewReader(bytes.Repeat([]byte{byte(ms)}, 10)))
		require.NoError(t, err)
		require.Greater(t, id, last)
		last = id
	}
}

func TestParseThreadID(t *testing.T) {
	for _, bad := range []string{
		"", "thr_", "thr_0000000000000000000000000", "thr_000000000000000000000000000", "THR_00000000000000000000000000",
		"thr_0000000000000000000000000A", "thr_0000000000000000000000000i", "thr_0000000000000000000000000l",
		"thr_0000000000000000000000000o", "thr_0000000000000000000000000u", "thr_0000000000000000000000000\n",
		"msg_00000000000000000000000000", "thr_0000000000000000000000000é",
	} {
		_, err := record.ParseThreadID(bad)
		require.ErrorIs(t, err, record.ErrInvalidID, bad)
	}
	id, err := record.ParseThreadID("thr_0123456789abcdefghjkmnpqrz")
	require.NoError(t, err)
	require.Equal(t, record.ThreadID("thr_0123456789abcdefghjkmnpqrz"), id)
}

func TestParseDigest(t *testing.T) {
	d := record.NewBlob([]byte("abc")).Digest
	require.Equal(t, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", d.String())
	again, err := record.ParseDigest(d.String())
	require.NoError(t, err)
	require.Equal(t, d, again)
	again, err = record.ParseBlobRef(record.NewBlob([]byte("abc")).Ref())
	require.NoError(t, err)
	require.Equal(t, d, again)

	for _, bad := range []string{"", d.String()[1:], d.String() + "0", strings.ToUpper(d.String()), "g" + d.String()[1:]} {
		_, err := record.ParseDigest(bad)
		require.ErrorIs(t, err, record.ErrInvalidID, bad)
		_, err = record.ParseBlobRef("sha256:" + bad)
		require.ErrorIs(t, err, record.ErrInvalidID, bad)
	}
	_, err = record.ParseBlobRef("sha512:" + d.String())
	require.ErrorIs(t, err, record.ErrInvalidID)
}
