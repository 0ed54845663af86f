package simprovider

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// long is a text of n tokens.
func long(n int) string { return strings.Repeat("long", n) }

// sim is a cache with a clock.
type sim struct {
	t     *testing.T
	cache cache
	now   time.Time
}

func newSim(t *testing.T) *sim {
	return &sim{t: t, cache: cache{entries: map[digest]cacheEntry{}}, now: time.Unix(1e9, 0)}
}

// ask looks a body up and begins its response.
func (s *sim) ask(account, body string) cacheResult {
	s.t.Helper()
	r, bad := parse([]byte(body))
	require.Nil(s.t, bad)
	require.Nil(s.t, r.validate())
	p := newPrompt(r, account)
	result, at := s.cache.look(p, s.now)
	s.cache.begin(p, at, s.now)
	require.Equal(s.t, p.total(), result.Input+result.Read+result.Write5m+result.Write1h, "every token is counted once")
	return result
}

// talk is a conversation of n messages after a first one that is long enough for a cache, with a top-level marker.
func talk(n int, more ...string) string {
	return bodyOf(messagesOf(n), append([]string{`"cache_control":{"type":"ephemeral"}`}, more...)...)
}

func messagesOf(n int) string {
	list := []string{fmt.Sprintf(`{"role":"user","content":%q}`, long(2000))}
	for i := range n {
		role := "assistant"
		if i%2 == 1 {
			role = "user"
		}
		list = append(list, fmt.Sprintf(`{"role":%q,"content":[{"type":"text","text":"message %d"}]}`, role, i))
	}
	return strings.Join(list, ",")
}

// A growing conversation reads what the request before wrote.
func TestCacheGrows(t *testing.T) {
	s := newSim(t)
	first := s.ask("a", talk(0))
	require.Zero(t, first.Read)
	require.Zero(t, first.Input, "the last block is marked")
	second := s.ask("a", talk(2))
	require.Equal(t, first.Write5m, second.Read)
	require.Positive(t, second.Write5m)
	third := s.ask("a", talk(4))
	require.Equal(t, second.Read+second.Write5m, third.Read)
	again := s.ask("a", talk(4))
	require.Equal(t, third.Read+third.Write5m, again.Read, "the same request reads all")
	require.Zero(t, again.Write5m+again.Write1h+again.Input)
}

// Another account, another model and another earlier block share nothing.
func TestCacheIsKeyed(t *testing.T) {
	s := newSim(t)
	s.ask("a", talk(0))
	require.Zero(t, s.ask("b", talk(2)).Read, "account")
	require.Zero(t, s.ask("a", strings.Replace(talk(2), "claude-opus-5-5", "claude-opus-5", 1)).Read, "model")
	require.Zero(t, s.ask("a", strings.Replace(talk(2), "long", "lonG", 1)).Read, "first message")
	require.Positive(t, s.ask("a", talk(2)).Read)
}

// Markers are no part of the prefix; the order of fields is.
func TestMarkersAreNoPartOfThePrefix(t *testing.T) {
	block := fmt.Sprintf(`{"type":"text","text":%q`, long(2000))
	s := newSim(t)
	first := s.ask("a", bodyOf(userOf(block+`,"cache_control":{"type":"ephemeral"}}`)))
	second := s.ask("a", bodyOf(userOf(block+"}", textBlock), `"cache_control":{"type":"ephemeral"}`))
	require.Equal(t, first.Write5m, second.Read)
	moved := s.ask("a", bodyOf(userOf(fmt.Sprintf(`{"text":%q,"type":"text"}`, long(2000))), `"cache_control":{"type":"ephemeral"}`))
	require.Zero(t, moved.Read)
}

// Settings that change how messages are rendered cost the messages, not tools and system.
func TestSettingsKeepToolsAndSystem(t *testing.T) {
	head := fmt.Sprintf(`"system":[{"type":"text","text":%q,"cache_control":{"type":"ephemeral"}}]`, long(3000))
	for name, setting := range map[string]string{
		"tool choice": `"tool_choice":{"type":"any"}`, "thinking": `"thinking":{"type":"adaptive"}`, "effort": `"output_config":{"effort":"low"}`,
	} {
		s := newSim(t)
		first := s.ask("a", talk(0, head))
		changed := s.ask("a", talk(2, head, setting))
		require.Less(t, changed.Read, first.Write5m, name)
		require.GreaterOrEqual(t, changed.Read, 3000, name)
		neutral := s.ask("a", talk(2, head, `"metadata":{"user_id":"x"}`, `"stream":true`, `"diagnostics":{"previous_message_id":null}`))
		require.Equal(t, first.Write5m, neutral.Read, "fields at the tail are neutral")
	}
}

// Entries live five minutes or an hour from their last use.
func TestCacheExpires(t *testing.T) {
	s := newSim(t)
	s.ask("a", talk(0))
	s.now = s.now.Add(5*time.Minute - time.Second)
	require.Positive(t, s.ask("a", talk(0)).Read)
	s.now = s.now.Add(5*time.Minute - time.Second)
	require.Positive(t, s.ask("a", talk(0)).Read, "reading refreshes")
	s.now = s.now.Add(5 * time.Minute)
	require.Zero(t, s.ask("a", talk(0)).Read)

	hour := func(n int) string { return bodyOf(messagesOf(n), `"cache_control":{"type":"ephemeral","ttl":"1h"}`) }
	first := s.ask("b", hour(0))
	require.Zero(t, first.Write5m)
	require.Positive(t, first.Write1h)
	s.now = s.now.Add(time.Hour - time.Second)
	require.Equal(t, first.Write1h, s.ask("b", talk(2)).Read, "an hour's entry keeps its hour when others read it")
	s.now = s.now.Add(time.Hour - time.Second)
	require.Equal(t, first.Write1h, s.ask("b", hour(4)).Read)
	s.now = s.now.Add(time.Hour)
	require.Zero(t, s.ask("b", hour(4)).Read)

	s.ask("c", hour(0))
	s.ask("c", talk(0))
	s.now = s.now.Add(10 * time.Minute)
	require.Positive(t, s.ask("c", talk(0)).Read, "marking it for five minutes does not shorten it")
}

// At each breakpoint the provider looks at twenty blocks, the marked one included.
func TestLookBack(t *testing.T) {
	for _, tc := range []struct {
		added int
		hit   bool
	}{{18, true}, {20, false}, {40, false}} {
		s := newSim(t)
		first := s.ask("a", talk(0))
		read := s.ask("a", talk(tc.added)).Read
		require.Equal(t, tc.hit, read == first.Write5m && read > 0, "%d blocks added", tc.added)
	}
	blocks := func(n int) string {
		list := []string{fmt.Sprintf(`{"type":"text","text":%q}`, long(2000))}
		for i := range n {
			list = append(list, fmt.Sprintf(`{"type":"text","text":"block %d"}`, i))
		}
		return bodyOf(userOf(list...), `"cache_control":{"type":"ephemeral"}`)
	}
	s := newSim(t)
	s.ask("a", blocks(0))
	require.Positive(t, s.ask("a", blocks(19)).Read, "the entry is the twentieth block")
	s = newSim(t)
	s.ask("a", blocks(0))
	require.Zero(t, s.ask("a", blocks(20)).Read, "the entry is the twenty-first block")

	s = newSim(t)
	first := s.ask("a", blocks(0))
	second := strings.Replace(blocks(25), `"text":"block 10"`, `"text":"block 10","cache_control":{"type":"ephemeral"}`, 1)
	require.Equal(t, first.Write5m, s.ask("a", second).Read, "an explicit breakpoint in between finds it")
}

// Prefixes that are too short for the model are not stored.
func TestMinimumLength(t *testing.T) {
	for _, tc := range []struct {
		model string
		min   int
	}{{"claude-opus-5-5", 512}, {"claude-sonnet-5-5", 1024}, {"claude-opus-4-7", 2048}, {"claude-haiku-4-5", 4096}} {
		short := strings.Replace(bodyOf(userOf(fmt.Sprintf(`{"type":"text","text":%q}`, long(tc.min-20))), `"cache_control":{"type":"ephemeral"}`), "claude-opus-5-5", tc.model, 1)
		enough := strings.Replace(short, "long", "longlong"+long(30), 1)
		s := newSim(t)
		require.Zero(t, s.ask("a", short).Write5m, tc.model)
		require.Zero(t, s.ask("a", short).Read, tc.model)
		require.Positive(t, s.ask("a", enough).Write5m, tc.model)
		require.Positive(t, s.ask("a", enough).Read, tc.model)
	}
}

// Where both lifetimes are marked, tokens up to the last hour marker count as an hour's, the rest as five minutes'.
func TestMixedLifetimes(t *testing.T) {
	body := func(last string) string {
		return bodyOf(userOf(
			fmt.Sprintf(`{"type":"text","text":%q,"cache_control":{"type":"ephemeral","ttl":"1h"}}`, long(1000)),
			fmt.Sprintf(`{"type":"text","text":%q,"cache_control":{"type":"ephemeral"}}`, long(500)),
			fmt.Sprintf(`{"type":"text","text":%q}`, last)))
	}
	s := newSim(t)
	first := s.ask("a", body("x"))
	require.Greater(t, first.Write1h, 1000)
	require.Greater(t, first.Write5m, 500)
	require.Less(t, first.Write5m, 600)
	require.Positive(t, first.Input)
	s.now = s.now.Add(10 * time.Minute)
	second := s.ask("a", body("y"))
	require.Equal(t, first.Write1h, second.Read)
	require.Equal(t, first.Write5m, second.Write5m)
	require.Zero(t, second.Write1h)
}

// The top-level marker goes to the last block that can hold one.
func TestTopLevelMarkerSkipsThinking(t *testing.T) {
	think := fmt.Sprintf(`{"type":"thinking","thinking":"so","signature":%q}`, signature("so"))
	r, bad := parse([]byte(bodyOf(hello+`,{"role":"assistant","content":[`+textBlock+`,`+think+`]},{"role":"system","content":[`+think+`]}`, `"cache_control":{"type":"ephemeral"}`)))
	require.Nil(t, bad)
	p := newPrompt(r, "a")
	require.Equal(t, []breakpoint{{1, 5 * time.Minute}}, p.breakpoints)
}

// Looking changes nothing: an entry is there once the response begins.
func TestEntriesAppearWhenTheResponseBegins(t *testing.T) {
	s := newSim(t)
	r, _ := parse([]byte(talk(0)))
	p := newPrompt(r, "a")
	_, at := s.cache.look(p, s.now)
	again, _ := s.cache.look(p, s.now)
	require.Zero(t, again.Read)
	s.cache.begin(p, at, s.now)
	after, _ := s.cache.look(p, s.now)
	require.Positive(t, after.Read)
}

// The cache does not grow without bound.
func TestCacheIsBounded(t *testing.T) {
	c := cache{entries: map[digest]cacheEntry{}}
	now := time.Unix(1e9, 0)
	for i := range maxCacheEntries + 10 {
		p := &prompt{model: "claude-opus-5", chain: []digest{{byte(i), byte(i >> 8), byte(i >> 16)}}, sum: []int{1000}, breakpoints: []breakpoint{{0, time.Hour}}}
		c.begin(p, -1, now)
		require.LessOrEqual(t, len(c.entries), maxCacheEntries)
	}
	require.NotEmpty(t, c.entries)
}

// In any walk of conversations each token is counted once, and nothing is read that no earlier request could have
// written.
func TestCacheWalk(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := newSim(t)
	written := map[string]int{}
	for range 200 {
		n := rng.IntN(30) * 2
		account := fmt.Sprint(rng.IntN(2))
		s.now = s.now.Add(time.Duration(rng.IntN(60)) * time.Second)
		got := s.ask(account, talk(n))
		require.LessOrEqual(t, got.Read, written[account])
		written[account] = max(written[account], got.Read+got.Write5m)
	}
}

// Why a prefix was not reused is said when it is asked for.
func TestDiagnostics(t *testing.T) {
	s := &fingerprints{byID: map[string]fingerprint{}}
	ask := func(account, previous, body string) string {
		r, bad := parse([]byte(body))
		require.Nil(t, bad)
		r.Diagnostics = &diagnosticsParam{}
		if previous != "" {
			r.Diagnostics.Previous = &previous
		}
		return string(s.diagnose(r, newPrompt(r, account), 0))
	}
	keep := func(id, account, body string) {
		r, _ := parse([]byte(body))
		s.remember(id, newFingerprint(newPrompt(r, account)))
	}
	tools := `"tools":[{"name":"a","input_schema":{}}]`
	keep("m1", "a", talk(0, tools, `"system":"s"`))
	for _, tc := range []struct{ name, account, previous, body, want string }{
		{"first turn", "a", "", talk(0), `null`},
		{"appended", "a", "m1", talk(2, tools, `"system":"s"`), `null`},
		{"unknown", "a", "m0", talk(2), `{"cache_miss_reason":{"type":"previous_message_not_found"}}`},
		{"another account's", "b", "m1", talk(2), `{"cache_miss_reason":{"type":"previous_message_not_found"}}`},
		{"model", "a", "m1", strings.Replace(talk(2), "opus-5-5", "opus-5", 1), `{"cache_miss_reason":{"type":"model_changed","cache_missed_input_tokens":2022}}`},
		{"tools", "a", "m1", talk(2, `"system":"s"`), `{"cache_miss_reason":{"type":"tools_changed","cache_missed_input_tokens":2022}}`},
		{"system", "a", "m1", talk(2, tools, `"system":"S"`), `{"cache_miss_reason":{"type":"system_changed","cache_missed_input_tokens":2022}}`},
		{"settings", "a", "m1", talk(2, tools, `"system":"s"`, `"tool_choice":{"type":"any"}`), `{"cache_miss_reason":{"type":"unavailable"}}`},
		{"messages", "a", "m1", strings.Replace(talk(2, tools, `"system":"s"`), "long", "lonG", 1), `{"cache_miss_reason":{"type":"messages_changed","cache_missed_input_tokens":2022}}`},
	} {
		require.Equal(t, tc.want, ask(tc.account, tc.previous, tc.body), tc.name)
	}
	for i := range maxFingerprints {
		s.remember(fmt.Sprint(i), fingerprint{})
	}
	require.Len(t, s.byID, maxFingerprints)
	require.Equal(t, `{"cache_miss_reason":{"type":"previous_message_not_found"}}`, ask("a", "m1", talk(2)), "the oldest is forgotten")
}
