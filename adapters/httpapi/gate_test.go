package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGate lets in only who has the key, names the runtime and comes from no foreign page.
func TestGate(t *testing.T) {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	for _, c := range []struct {
		name   string
		change func(*http.Request)
		status int
		code   string
	}{
		{"the key", nil, 200, ""},
		{"no key", func(r *http.Request) { r.Header.Del("Authorization") }, 401, "bad-key"},
		{"empty key", header("Authorization", "Bearer "), 401, "bad-key"},
		{"wrong key", header("Authorization", "Bearer correct horsf"), 401, "bad-key"},
		{"key and more", header("Authorization", "Bearer "+testKey+"!"), 401, "bad-key"},
		{"half a key", header("Authorization", "Bearer correct"), 401, "bad-key"},
		{"another scheme", header("Authorization", "Basic "+testKey), 401, "bad-key"},
		{"key in the URL", func(r *http.Request) { r.Header.Del("Authorization"); r.URL.RawQuery = "key=" + testKey }, 401, "bad-key"},
		{"two keys", func(r *http.Request) { r.Header.Add("Authorization", "Bearer other") }, 401, "bad-key"},
		{"localhost", host("localhost:4785"), 200, ""},
		{"case of the host", host("LocalHost:4785"), 200, ""},
		{"named host", host("box.local:4785"), 200, ""},
		{"foreign host", host("evil.example:4785"), 403, "foreign-host"},
		{"rebound name", host("evil.example"), 403, "foreign-host"},
		{"other port", host("127.0.0.1:4786"), 403, "foreign-host"},
		{"no port", host("127.0.0.1"), 403, "foreign-host"},
		{"no host", host(""), 403, "foreign-host"},
		{"suffix", host("127.0.0.1:4785.evil.example"), 403, "foreign-host"},
		{"own origin", header("Origin", "http://"+testAddr), 200, ""},
		{"foreign origin", header("Origin", "http://evil.example"), 403, "foreign-origin"},
		{"null origin", header("Origin", "null"), 403, "foreign-origin"},
		{"empty origin", header("Origin", ""), 403, "foreign-origin"},
		{"https origin", header("Origin", "https://"+testAddr), 403, "foreign-origin"},
		{"other local origin", header("Origin", "http://127.0.0.1:3000"), 403, "foreign-origin"},
		{"two origins", func(r *http.Request) {
			r.Header["Origin"] = []string{"http://" + testAddr, "http://evil.example"}
		}, 403, "foreign-origin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t)
			b.options.Hosts = []string{"box.local:4785"}
			answer := b.ask("GET", "/v1/threads", "", c.change)
			require.Equal(t, c.status, answer.status, answer.text)
			if c.code != "" {
				_, code := answer.code(t)
				require.Equal(t, c.code, code)
			}
			require.NotContains(t, answer.text+b.log.String(), testKey)
		})
	}
}

// TestEveryRouteIsGated asks each route, and one that does not exist, without a key and from a foreign host.
func TestEveryRouteIsGated(t *testing.T) {
	b := newBed(t)
	paths := [][2]string{{"GET", "/v1/nothing"}, {"POST", "/"}}
	for _, r := range (&api{}).routes() {
		paths = append(paths, [2]string{r.method, strings.NewReplacer("{id}", string(threadN(1)), "{call}", "1.0").Replace(r.path)})
	}
	for _, p := range paths {
		answer := b.ask(p[0], p[1], "", func(r *http.Request) { r.Header.Del("Authorization") })
		if p[1] == "/health" {
			require.Equal(t, 200, answer.status, "health is for everybody")
		} else {
			require.Equal(t, 401, answer.status, p)
			require.Equal(t, `Bearer realm="cnd-runtime"`, answer.header.Get("WWW-Authenticate"))
		}
		answer = b.ask(p[0], p[1], "", func(r *http.Request) { r.Host = "evil.example" })
		require.Equal(t, 403, answer.status, p)
	}
	require.Empty(t, b.asked)
}

// TestNewRefusesAnOpenServer panics rather than serve without a key.
func TestNewRefusesAnOpenServer(t *testing.T) {
	require.Panics(t, func() { New(Options{Addr: testAddr}) })
	require.Panics(t, func() { New(Options{Key: testKey, Addr: "127.0.0.1"}) })
}
