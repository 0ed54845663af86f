package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"condensate.dev/cnd/core/fault"
)

// Errors of heads.
var (
	// ErrNoHead: the export does not end with a signed head.
	ErrNoHead = fault.New(fault.Corrupt, "head-missing", "export does not end with a signed head")
	// ErrHead: a signed head does not match the record, its note or its key.
	ErrHead = fault.New(fault.Corrupt, "head-mismatch", "signed head does not match")
)

// HeadSigner signs the texts of heads with one key. It is safe for concurrent use.
type HeadSigner interface {
	// SignNote returns the signed note (https://c2sp.org/signed-note) of text with exactly one signature.
	SignNote(text string) (note string, err error)
	// VerifierKey returns the public part: name, key hash in hexadecimal and key in base64, joined with "+".
	VerifierKey() string
}

// HeadOpener checks the signatures of notes.
type HeadOpener interface {
	// OpenNote returns the text of a note that the verifier key signed, or an error.
	OpenNote(note, verifierKey string) (text string, err error)
}

// headDomain separates signed heads from all other notes; it is part of the format.
const headDomain = "condensate.dev/head/v0\n"

// HeadText returns the text that is signed for the head of a thread: domain, thread, seq, hash and the hash of the
// note before it in the signer's file, each with a newline.
func HeadText(thread ThreadID, at Head, prev Digest) string {
	b := append([]byte(headDomain), thread...)
	b = append(b, '\n')
	b = strconv.AppendUint(b, uint64(at.Seq), 10)
	b = append(b, '\n')
	b = hex.AppendEncode(b, at.Hash[:])
	b = append(b, '\n')
	b = hex.AppendEncode(b, prev[:])
	return string(append(b, '\n'))
}

// SignedHead is the place of an entry with the note of its signer.
type SignedHead struct {
	Thread ThreadID
	Seq    Seq
	Hash   Digest
	Prev   Digest // hash of the note before it in the signer's file; zero for the first
	Note   string
}

// SignHead signs the place of a thread.
func SignHead(s HeadSigner, thread ThreadID, at Head, prev Digest) (SignedHead, error) {
	note, err := s.SignNote(HeadText(thread, at, prev))
	if err != nil {
		return SignedHead{}, fmt.Errorf("sign head %d of %s: %w", at.Seq, thread, err)
	}
	h := SignedHead{Thread: thread, Seq: at.Seq, Hash: at.Hash, Prev: prev, Note: note}
	return h, h.check()
}

// Place returns the place that h names.
func (h SignedHead) Place() Head { return Head{Seq: h.Seq, Hash: h.Hash} }

// NoteHash returns the hash of the note, which the next note of its signer names as prev.
func (h SignedHead) NoteHash() Digest { return sha256.Sum256([]byte(h.Note)) }

// Open checks that the verifier key signed h. The error wraps [ErrHead].
func (h SignedHead) Open(o HeadOpener, verifierKey string) error {
	if err := h.check(); err != nil {
		return err
	}
	text, err := o.OpenNote(h.Note, verifierKey)
	if err != nil {
		return fmt.Errorf("note of head %d of %s: %v: %w", h.Seq, h.Thread, err, ErrHead)
	}
	if text != HeadText(h.Thread, h.Place(), h.Prev) {
		return fmt.Errorf("note of head %d of %s is about something else: %w", h.Seq, h.Thread, ErrHead)
	}
	return nil
}

// keyHashLen is how many bytes of a signature name its key.
const keyHashLen = 4

// check says whether the note has its one form: the text of the head, an empty line and one signature line, whose
// base64 is strict.
func (h SignedHead) check() error {
	rest, ok := strings.CutPrefix(h.Note, HeadText(h.Thread, h.Place(), h.Prev)+"\n— ")
	if !ok {
		return fmt.Errorf("note of head %d of %s is about something else: %w", h.Seq, h.Thread, ErrHead)
	}
	name, signature, ok := strings.Cut(rest, " ")
	signature, end := strings.CutSuffix(signature, "\n")
	if !ok || !end || !validKeyName(name) {
		return fmt.Errorf("note of head %d of %s has no single signature: %w", h.Seq, h.Thread, ErrHead)
	}
	if s, err := strictBase64(nil, []byte(signature)); err != nil || len(s) <= keyHashLen {
		return fmt.Errorf("signature of head %d of %s is not in its one form: %w", h.Seq, h.Thread, ErrHead)
	}
	return nil
}

// validKeyName says whether a key's name needs no escape anywhere: printable ASCII without space, plus, quote and
// backslash.
func validKeyName(name string) bool {
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c > '~' || c == '+' || c == '"' || c == '\\' {
			return false
		}
	}
	return name != ""
}

// KeyID returns the name and hash of a verifier key, for people and programs to compare; "" for something else.
func KeyID(verifierKey string) string {
	name, rest, _ := strings.Cut(verifierKey, "+")
	hash, key, ok := strings.Cut(rest, "+")
	if _, err := base64.StdEncoding.DecodeString(key); !ok || err != nil || !validKeyName(name) || len(hash) != 8 || !isLowerHex([]byte(hash)) {
		return ""
	}
	return name + "+" + hash
}

// The layout of a head line.
const (
	headOpen = `{"v":0,"head":{"thread":"`
	headNote = `"},"note":"`
	headEnd  = `"}`
)

// IsHeadLine says whether a line is one that holds a signed head.
func IsHeadLine(line []byte) bool { return bytes.HasPrefix(line, []byte(headOpen)) }

// AppendLine appends the line of h, as it ends an export and stands in a file of heads, without its newline.
func (h SignedHead) AppendLine(line []byte) []byte {
	line = append(line, headOpen...)
	line = append(line, h.Thread...)
	line = append(line, `","seq":`...)
	line = strconv.AppendUint(line, uint64(h.Seq), 10)
	line = append(line, `,"hash":"`...)
	line = hex.AppendEncode(line, h.Hash[:])
	line = append(line, `","prev":"`...)
	line = hex.AppendEncode(line, h.Prev[:])
	line = append(line, headNote...)
	line = append(line, strings.ReplaceAll(h.Note, "\n", `\n`)...)
	return append(line, headEnd...)
}

// ParseHeadLine reads such a line, without its newline. It accepts nothing but the one byte form; the signature is
// not checked (see [SignedHead.Open]). Damage is an error wrapping [ErrInvalidEntry] or [ErrHead].
func ParseHeadLine(line []byte) (SignedHead, error) {
	var h SignedHead
	p := parser{rest: line}
	p.literal(headOpen)
	h.Thread = ThreadID(p.until('"'))
	p.literal(`","seq":`)
	h.Seq = Seq(p.number())
	p.literal(`,"hash":"`)
	h.Hash = p.digest()
	p.literal(`","prev":"`)
	h.Prev = p.digest()
	p.literal(headNote)
	h.Note = strings.ReplaceAll(string(p.until('"')), `\n`, "\n")
	p.literal(headEnd)
	if p.err != nil {
		return SignedHead{}, p.err
	}
	if !ValidID(PrefixThread, string(h.Thread)) {
		return SignedHead{}, fmt.Errorf("head of thread %.80q: %w", h.Thread, ErrInvalidEntry)
	}
	if err := h.check(); err != nil {
		return SignedHead{}, err
	}
	if !bytes.Equal(h.AppendLine(make([]byte, 0, len(line))), line) {
		return SignedHead{}, fmt.Errorf("head line is not in its one form: %w", ErrInvalidEntry)
	}
	return h, nil
}
