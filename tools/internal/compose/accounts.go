package compose

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"condensate.dev/cnd/adapters/anthropic"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/thread"
)

// The accounts that exist before there is a login layer.
const (
	accountSim       = "sim:default"
	accountAnthropic = "anthropic:default"
)

// simCredential is what the simulator gets as a credential. It is no secret.
const simCredential = "login-of-the-simulator"

// Credential is an API key of the environment. It cannot be printed.
type Credential struct{ clear string }

// TakeCredential returns the key of ANTHROPIC_API_KEY and removes it from the environment, so that no child gets it.
func TakeCredential() Credential {
	key := strings.TrimSpace(os.Getenv(EnvKey))
	os.Unsetenv(EnvKey)
	return Credential{key}
}

// Format implements [fmt.Formatter]: every verb prints "[redacted]".
func (Credential) Format(f fmt.State, _ rune) { io.WriteString(f, "[redacted]") }

// MarshalText implements encoding.TextMarshaler in the same way, for slog and JSON.
func (Credential) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }

// accounts sends each request with the login of its account to where that account lives. It implements [loop.Model].
type accounts map[string]*anthropic.Client

var _ loop.Model = accounts(nil)

var errNoAccount = errors.New("no such account")

// newAccounts returns the simulator's account and, when there is a key, the real one.
func newAccounts(simAddr string, key Credential) accounts {
	a := accounts{accountSim: anthropic.New(anthropic.Options{
		Dial: map[string]string{origin: "http://" + simAddr},
		Key:  func(string) (string, error) { return simCredential, nil },
	})}
	if key.clear != "" {
		a[accountAnthropic] = anthropic.New(anthropic.Options{Key: func(account string) (string, error) {
			if account != accountAnthropic {
				return "", errNoAccount
			}
			return key.clear, nil
		}})
	}
	return a
}

// preferred returns the account of a thread that names none.
func (a accounts) preferred() string {
	if a.has(accountAnthropic) {
		return accountAnthropic
	}
	return accountSim
}

func (a accounts) has(account string) bool { return a[account] != nil }

func defaultModel(account string) string {
	if account == accountSim {
		return SimModel
	}
	return DefaultModel
}

// Send implements [loop.Model].
func (a accounts) Send(ctx context.Context, r loop.Request, deltas func(kind, text string)) (loop.Answer, error) {
	client := a[r.Epoch.Account]
	if client == nil {
		return loop.Answer{}, &loop.ModelError{Cause: thread.CauseAuth, Detail: "no login for account " + r.Epoch.Account}
	}
	return client.Send(ctx, r, deltas)
}

func (a accounts) close() {
	for _, client := range a {
		client.Close()
	}
}
