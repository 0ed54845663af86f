package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
)

// Blob is content kept outside a body.
type Blob struct {
	Digest Digest
	Data   []byte
}

// NewBlob returns the blob of data.
func NewBlob(data []byte) Blob { return Blob{Digest: sha256.Sum256(data), Data: data} }

// Ref returns how a body names the blob: "sha256:" and the digest.
func (b Blob) Ref() string { return BlobPrefix + b.Digest.String() }

// BlobPrefix stands before the digest where a body names a blob.
const BlobPrefix = "sha256:"

// ParseBlobRef reads the name of a blob as it stands in a body.
func ParseBlobRef(ref string) (Digest, error) {
	if len(ref) <= len(BlobPrefix) || ref[:len(BlobPrefix)] != BlobPrefix {
		return Digest{}, fmt.Errorf("blob name %.80q: %w", ref, ErrInvalidID)
	}
	return ParseDigest(ref[len(BlobPrefix):])
}

// weight is what the blob counts towards [MaxBlobs].
func (b Blob) weight() int { return 128 + len(b.Data) }

// check says whether the data is within [MaxBlob] and has the digest.
func (b Blob) check() error {
	if len(b.Data) > MaxBlob {
		return fmt.Errorf("blob of %d bytes, limit %d: %w", len(b.Data), MaxBlob, ErrInvalidEntry)
	}
	if got := Digest(sha256.Sum256(b.Data)); got != b.Digest {
		return fmt.Errorf("blob %s has the content of %s: %w", b.Digest, got, ErrInvalidEntry)
	}
	return nil
}

// The layout of a blob line.
const (
	blobOpen = `{"v":0,"blob":"` + BlobPrefix
	blobData = `","data":"`
	blobEnd  = `"}`
)

// AppendLine appends the line of an export that carries the blob, without its newline.
func (b Blob) AppendLine(line []byte) []byte {
	line = append(line, blobOpen...)
	line = hex.AppendEncode(line, b.Digest[:])
	line = append(line, blobData...)
	line = base64.StdEncoding.AppendEncode(line, b.Data)
	return append(line, blobEnd...)
}

// IsBlobLine says whether a line of an export is one that carries a blob.
func IsBlobLine(line []byte) bool { return bytes.HasPrefix(line, []byte(blobOpen)) }

// BlobLineDigest returns the digest that such a line names, without looking at the content; ok is false for another
// line.
func BlobLineDigest(line []byte) (d Digest, ok bool) {
	if !IsBlobLine(line) {
		return Digest{}, false
	}
	p := parser{rest: line[len(blobOpen):]}
	d = p.digest()
	return d, p.err == nil
}

// ParseBlobLine reads such a line, without its newline, into buf, which grows when it must. It accepts nothing but the
// one byte form of the blob; the error wraps [ErrInvalidEntry].
func ParseBlobLine(line, buf []byte) (Blob, error) {
	var b Blob
	p := parser{rest: line}
	p.literal(blobOpen)
	b.Digest = p.digest()
	p.literal(blobData)
	text, ok := bytes.CutSuffix(p.rest, []byte(blobEnd))
	if p.err == nil && !ok {
		p.fail("end of line")
	}
	if p.err != nil {
		return Blob{}, p.err
	}
	data, err := strictBase64(buf[:0], text)
	if err != nil {
		return Blob{}, fmt.Errorf("blob %s: %w", b.Digest, err)
	}
	b.Data = data
	return b, b.check()
}

var strict = base64.StdEncoding.Strict()

// strictBase64 appends what text decodes to; text must be the one base64 form of it.
func strictBase64(buf, text []byte) ([]byte, error) {
	data, err := strict.AppendDecode(buf, text)
	// The length shows what the decoder skips: line breaks.
	if err != nil || strict.EncodedLen(len(data)) != len(text) {
		return nil, fmt.Errorf("base64 is not in its one form: %w", ErrInvalidEntry)
	}
	return data, nil
}
