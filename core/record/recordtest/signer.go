package recordtest

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"condensate.dev/cnd/core/record"
)

// Signer signs and opens notes with a key made from a seed: a second implementation of signed notes with the standard
// library alone, for tests of core and to hold adapters/notes against.
type Signer struct {
	name string
	key  ed25519.PrivateKey
}

var (
	_ record.HeadSigner = Signer{}
	_ record.HeadOpener = Signer{}
)

// NewSigner returns the signer with that name and seed.
func NewSigner(name string, seed byte) Signer {
	return Signer{name: name, key: ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), seed))}
}

// public returns the encoded public key: the algorithm, 1, and the key.
func (s Signer) public() []byte {
	return append([]byte{1}, s.key.Public().(ed25519.PublicKey)...)
}

func keyHash(name string, public []byte) []byte {
	sum := sha256.Sum256(append([]byte(name+"\n"), public...))
	return sum[:4]
}

// SignNote implements [record.HeadSigner].
func (s Signer) SignNote(text string) (string, error) {
	signature := append(keyHash(s.name, s.public()), ed25519.Sign(s.key, []byte(text))...)
	return text + "\n— " + s.name + " " + base64.StdEncoding.EncodeToString(signature) + "\n", nil
}

// VerifierKey implements [record.HeadSigner].
func (s Signer) VerifierKey() string {
	public := s.public()
	hash := binary.BigEndian.Uint32(keyHash(s.name, public))
	return fmt.Sprintf("%s+%08x+%s", s.name, hash, base64.StdEncoding.EncodeToString(public))
}

// OpenNote implements [record.HeadOpener]; it takes any verifier key.
func (Signer) OpenNote(note, verifierKey string) (string, error) {
	parts := strings.SplitN(verifierKey, "+", 3)
	if len(parts) != 3 {
		return "", errors.New("malformed verifier key")
	}
	name := parts[0]
	public, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(public) != 1+ed25519.PublicKeySize || public[0] != 1 || parts[1] != fmt.Sprintf("%x", keyHash(name, public)) {
		return "", errors.New("malformed verifier key")
	}
	text, signatures, ok := strings.Cut(note, "\n\n— "+name+" ")
	signature, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(signatures, "\n"))
	if !ok || err != nil || len(signature) != 4+ed25519.SignatureSize || string(signature[:4]) != string(keyHash(name, public)) {
		return "", errors.New("not signed by this key")
	}
	if text += "\n"; !ed25519.Verify(public[1:], []byte(text), signature[4:]) {
		return "", errors.New("wrong signature")
	}
	return text, nil
}
