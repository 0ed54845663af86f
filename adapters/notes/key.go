// Package notes signs the heads of threads as signed notes (https://c2sp.org/signed-note) with an Ed25519 key, and
// keeps every note in one append-only file of lines.
//
// # Files
//
//	record.key    the signer key of golang.org/x/mod/sumdb/note on one line, mode 0600, made once
//	heads.jsonl   one head line (docs/formats/record.md) per note; prev is the SHA-256 of the note on the line before
//
// A last line without a newline is a write that was cut short: it is trimmed when the file is opened for append. Any
// other damage is refused.
package notes

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/internal/durable"
)

// KeyName is the name of the keys that this package makes; it stands in every note.
const KeyName = "condensate.dev/record"

// ErrKey: the key file cannot be used as it is.
var ErrKey = fault.New(fault.Config, "record-key-unusable", "the key that signs records cannot be used")

var _ record.HeadSigner = (*Key)(nil)

// Key is an Ed25519 key that signs heads. It cannot be printed.
type Key struct {
	signer   note.Signer
	verifier string
}

// LoadOrCreateKey reads the key file at path, or makes a new key there: mode 0600, complete and durable or not there
// at all. A key file that others can read is an error wrapping [ErrKey].
func LoadOrCreateKey(path string, entropy io.Reader) (*Key, error) {
	key, err := LoadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := createKey(path, entropy); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make record key: %w", err)
	}
	return LoadKey(path)
}

// LoadKey reads the key file at path; a missing one is an error wrapping fs.ErrNotExist.
func LoadKey(path string) (*Key, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("record key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("record key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		err := fmt.Errorf("record key %s has mode %04o: %w", path, info.Mode().Perm(), ErrKey)
		return nil, fault.WithHint(err, "chmod 600 "+path)
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return nil, fmt.Errorf("record key: %w", err)
	}
	key, err := parseKey(strings.TrimSuffix(string(text), "\n"))
	if err != nil {
		return nil, fmt.Errorf("record key %s: %w", path, err)
	}
	return key, nil
}

// parseKey reads a signer key. Its errors hold nothing of the text.
func parseKey(text string) (*Key, error) {
	signer, err := note.NewSigner(text)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", err, ErrKey)
	}
	// PRIVATE+KEY+<name>+<hash>+<base64>, where base64 may hold a '+' of its own.
	seed, err := base64.StdEncoding.DecodeString(strings.SplitN(text, "+", 5)[4])
	if err != nil || len(seed) != 1+ed25519.SeedSize {
		return nil, ErrKey
	}
	public := ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey)
	verifier, err := note.NewEd25519VerifierKey(signer.Name(), public)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", err, ErrKey)
	}
	return &Key{signer: signer, verifier: verifier}, nil
}

func createKey(path string, entropy io.Reader) (err error) {
	text, _, err := note.GenerateKey(entropy, KeyName)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".record-key-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(text + "\n")
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil { // unlike a rename, it never replaces a key
		return err
	}
	return durable.SyncFolder(dir)
}

// SignNote implements [record.HeadSigner].
func (k *Key) SignNote(text string) (string, error) {
	signed, err := note.Sign(&note.Note{Text: text}, k.signer)
	return string(signed), err
}

// VerifierKey implements [record.HeadSigner].
func (k *Key) VerifierKey() string { return k.verifier }

// Format implements [fmt.Formatter]: every verb prints "[redacted]".
func (Key) Format(f fmt.State, _ rune) { io.WriteString(f, "[redacted]") }

// MarshalText implements encoding.TextMarshaler in the same way, for slog and JSON.
func (Key) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }

// CheckVerifierKey returns why a text is no verifier key, or nil.
func CheckVerifierKey(verifierKey string) error {
	_, err := note.NewVerifier(verifierKey)
	return err
}

// Opener checks the signatures of notes. The zero Opener is ready to use.
type Opener struct{}

var _ record.HeadOpener = Opener{}

// OpenNote implements [record.HeadOpener].
func (Opener) OpenNote(signed, verifierKey string) (string, error) {
	verifier, err := note.NewVerifier(verifierKey)
	if err != nil {
		return "", fmt.Errorf("verifier key %.100q: %w", verifierKey, err)
	}
	n, err := note.Open([]byte(signed), note.VerifierList(verifier))
	var other *note.UnverifiedNoteError
	if errors.As(err, &other) {
		return "", fmt.Errorf("not signed by %s", record.KeyID(verifierKey))
	}
	if err != nil {
		return "", err
	}
	return n.Text, nil
}
