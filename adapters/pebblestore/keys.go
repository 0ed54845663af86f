package pebblestore

import (
	"encoding/binary"
	"fmt"

	"condensate.dev/cnd/core/record"
)

// The first bytes of the keys. The package comment shows the layout.
const (
	entryPrefix   = "t/"
	blobPrefix    = "b/"
	headPrefix    = "h/"
	foreignPrefix = "f/"
	importPrefix  = "i/"
	schemaKey     = "meta/schema"
)

// headLen is the length of a head where it is stored, before the projection.
const headLen = 8 + len(record.Digest{})

func key(prefix string, thread record.ThreadID) []byte {
	return append(append(make([]byte, 0, len(prefix)+len(thread)), prefix...), thread...)
}

func entryKeyLen(thread record.ThreadID) int { return len(entryPrefix) + len(thread) + 1 + 8 }

func appendEntryKey(b []byte, thread record.ThreadID, seq record.Seq) []byte {
	b = append(b, entryPrefix...)
	b = append(b, thread...)
	b = append(b, '/')
	return binary.BigEndian.AppendUint64(b, uint64(seq))
}

func entryKey(thread record.ThreadID, seq record.Seq) []byte {
	return appendEntryKey(make([]byte, 0, entryKeyLen(thread)), thread, seq)
}

// entriesEnd is the first key after all entries of thread.
func entriesEnd(thread record.ThreadID) []byte {
	b := append(append(make([]byte, 0, entryKeyLen(thread)), entryPrefix...), thread...)
	return append(b, '/'+1)
}

func blobKey(d record.Digest) []byte {
	return append(append(make([]byte, 0, len(blobPrefix)+len(d)), blobPrefix...), d[:]...)
}

// prefixEnd is the first key after all keys with prefix, which does not end in 0xff.
func prefixEnd(prefix string) []byte {
	b := []byte(prefix)
	b[len(b)-1]++
	return b
}

func appendHead(b []byte, h record.Head) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(h.Seq))
	return append(b, h.Hash[:]...)
}

// parseHead reads a stored head and the projection after it, which shares its memory.
func parseHead(b []byte) (h record.Head, projection []byte, err error) {
	if len(b) < headLen {
		return h, nil, fmt.Errorf("head of %d bytes, want %d: %w", len(b), headLen, record.ErrDamaged)
	}
	h.Seq = record.Seq(binary.BigEndian.Uint64(b))
	copy(h.Hash[:], b[8:])
	return h, b[headLen:], nil
}
