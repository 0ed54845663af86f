package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/fault"
)

func event(tool string, writes bool, paths ...string) Event {
	return Event{Tool: tool, Cwd: "/srv/thread", Writes: writes, Paths: paths}
}

func bash(command string, allow ...string) Event {
	input, _ := json.Marshal(map[string]string{"command": command})
	return Event{Tool: "bash", Cwd: "/srv/thread", Writes: true, Input: input, Allow: allow}
}

// TestBuiltIn holds what happens without rules of the owner.
func TestBuiltIn(t *testing.T) {
	for _, c := range []struct {
		why  string
		e    Event
		want Verdict
		rule string
	}{
		{"a read inside", event("read", false, "/srv/thread/a"), Allow, "reads"},
		{"the folder itself", event("glob", false, "/srv/thread"), Allow, "reads"},
		{"a tool without paths that reads", event("task", false), Allow, "reads"},
		{"a read outside", event("read", false, "/etc/passwd"), Ask, "outside-folder"},
		{"a folder that only begins alike", event("read", false, "/srv/thread2/a"), Ask, "outside-folder"},
		{"a write inside", event("write", true, "/srv/thread/a"), Allow, "writes-in-folder"},
		{"one of two writes outside", event("write", true, "/srv/thread/a", "/srv/b"), Ask, "outside-folder"},
		{"a write to what git runs", event("write", true, "/srv/thread/.git/hooks/pre-commit"), Ask, "writes-git"},
		{"the same by another spelling", event("edit", true, "/srv/thread/sub/.GIT/config"), Ask, "writes-git"},
		{"where git looks", event("write", true, "/srv/thread/.git"), Ask, "writes-git"},
		{"a read of it", event("read", false, "/srv/thread/.git/config"), Allow, "reads"},
		{"a name that only begins alike", event("write", true, "/srv/thread/.github/x"), Allow, "writes-in-folder"},
		{"a command", bash("ls"), Ask, "asks-by-default"},
		{"a command in a thread that allows it", bash("ls", "bash"), Allow, "allowed-in-thread"},
		{"a command in a thread that allows something else", bash("ls", "write"), Ask, "asks-by-default"},
	} {
		d := Evaluate(c.e, nil)
		require.Equal(t, c.want.String(), d.Verdict.String(), c.why)
		require.Equal(t, c.rule, d.Rule, c.why)
		require.NotEmpty(t, d.Reason, c.why)
	}
	rooted := event("read", false, "/etc/passwd")
	rooted.Cwd = "/"
	require.Equal(t, Allow, Evaluate(rooted, nil).Verdict, "everything is inside the root")
}

// TestRules holds that the first matching rule decides, and what matches.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		why   string
		e     Event
		rules []Rule
		want  Verdict
		rule  string
	}{
		{"the first match decides", bash("ls"), []Rule{{Tool: "bash", Verdict: "deny"}, {Tool: "bash", Verdict: "allow"}}, Deny, "rule 1"},
		{"another tool does not match", bash("ls"), []Rule{{Tool: "read", Verdict: "deny"}, {Tool: "*", Verdict: "allow"}}, Allow, "rule 2"},
		{"a pattern for tools", event("mcp__x", true), []Rule{{Tool: "mcp__*", Verdict: "deny", Name: "no-mcp"}}, Deny, "no-mcp"},
		{"owner before thread", bash("ls", "bash"), []Rule{{Tool: "bash", Verdict: "ask"}}, Ask, "rule 1"},
		{"a command", bash("git status"), []Rule{{Tool: "bash", Pattern: "git *", Verdict: "allow"}}, Allow, "rule 1"},
		{"the whole command", bash("sudo git status"), []Rule{{Tool: "bash", Pattern: "git *", Verdict: "allow"}}, Ask, "asks-by-default"},
		{"allow needs a plain command", bash("git status; rm -rf /"), []Rule{{Tool: "bash", Pattern: "git *", Verdict: "allow"}}, Ask, "asks-by-default"},
		{"deny does not", bash("git status; rm -rf /"), []Rule{{Tool: "bash", Pattern: "*rm -rf*", Verdict: "deny"}}, Deny, "rule 1"},
		{"no command", Event{Tool: "bash", Writes: true, Input: json.RawMessage(`{"command":7}`)}, []Rule{{Tool: "bash", Pattern: "*", Verdict: "allow"}}, Ask, "asks-by-default"},
		{"a path", event("read", false, "/etc/hosts"), []Rule{{Tool: "read", Pattern: "/etc/*", Verdict: "allow"}}, Allow, "rule 1"},
		{"a relative pattern", event("write", true, "/srv/thread/.git/config"), []Rule{{Tool: "write", Pattern: ".git/*", Verdict: "deny"}}, Deny, "rule 1"},
		{"anywhere", event("read", false, "/srv/thread/a/.env"), []Rule{{Tool: "*", Pattern: "*/.env", Verdict: "deny"}}, Deny, "rule 1"},
		{"allow needs all paths", event("write", true, "/x/a", "/y/b"), []Rule{{Tool: "write", Pattern: "/x/*", Verdict: "allow"}}, Ask, "outside-folder"},
		{"deny needs one", event("write", true, "/srv/thread/a", "/y/b"), []Rule{{Tool: "write", Pattern: "/y/*", Verdict: "deny"}}, Deny, "rule 1"},
		{"deny is wide about case", event("read", false, "/srv/thread/Secret/.ENV"), []Rule{{Tool: "read", Pattern: "*secret/.env", Verdict: "deny"}}, Deny, "rule 1"},
		{"and so is ask", event("read", false, "/srv/thread/ſecret"), []Rule{{Tool: "read", Pattern: "SECRET", Verdict: "ask"}}, Ask, "rule 1"},
		{"allow is not", event("read", false, "/etc/HOSTS"), []Rule{{Tool: "read", Pattern: "/etc/hosts", Verdict: "allow"}}, Ask, "outside-folder"},
		{"allowing paths of every tool allows no command", bash("/opt/x"), []Rule{{Tool: "*", Pattern: "/opt/*", Verdict: "allow"}}, Ask, "asks-by-default"},
		{"denying them does", bash("/opt/x"), []Rule{{Tool: "*", Pattern: "/opt/*", Verdict: "deny"}}, Deny, "rule 1"},
		{"what is no verdict denies", bash("ls"), []Rule{{Tool: "bash", Verdict: "alow"}}, Deny, "rule 1"},
	} {
		d := Evaluate(c.e, c.rules)
		require.Equal(t, c.want.String(), d.Verdict.String(), c.why)
		require.Equal(t, c.rule, d.Rule, c.why)
		require.NotEmpty(t, d.Reason, c.why)
	}
}

// TestPlain holds that nothing with a meaning to the shell is a plain command.
func TestPlain(t *testing.T) {
	for _, c := range []string{"git status", `git commit -m "a b"`, "go test ./... -run 'X'", "a=b env"} {
		require.True(t, plain(c), c)
	}
	for _, c := range []string{"a;b", "a&b", "a|b", "a>b", "a<b", "a`b`", "a $(b)", "a\nb", "a\\b", "(a)", "{ a; }", "a\x00", "!a", "$a"} {
		require.False(t, plain(c), c)
	}
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "a", true}, {"a", "ab", false}, {"*", "", true}, {"*", "a/b", true},
		{"a*", "a", true}, {"a*c", "abc", true}, {"a*c", "ab", false}, {"*b*", "abc", true}, {"a*b*c", "aXbYc", true},
		{"a*bc", "abcbc", true}, {"a*a", "a", false}, {"**", "x", true}, {"*ab", "aab", true}, {"a**b", "ab", true},
	} {
		require.Equal(t, c.want, glob(c.pattern, c.text), "%q on %q", c.pattern, c.text)
	}
}

// TestVerdictZero holds that a forgotten decision denies.
func TestVerdictZero(t *testing.T) {
	require.Equal(t, Deny, Decision{}.Verdict)
	require.Equal(t, "deny", Decision{}.Verdict.String())
}

// TestNewOwner holds that every problem is named at once, and that a good list decides.
func TestNewOwner(t *testing.T) {
	_, err := NewOwner([]Rule{{Verdict: "allow"}, {Tool: "read", Verdict: "maybe", Name: "second"}, {Tool: "*", Verdict: "ask"}})
	require.ErrorIs(t, err, ErrInvalidRule)
	require.Equal(t, fault.Config, fault.ClassOf(err))
	require.Contains(t, err.Error(), "rule 1: tool is missing")
	require.Contains(t, err.Error(), `second: verdict "maybe"`)
	require.False(t, strings.Contains(err.Error(), "rule 3"))

	rules := []Rule{{Tool: "bash", Verdict: "deny", Reason: "not here"}}
	o, err := NewOwner(rules)
	require.NoError(t, err)
	rules[0].Verdict = "allow"
	d, err := o.Decide(t.Context(), bash("ls"))
	require.NoError(t, err)
	require.Equal(t, Decision{Verdict: Deny, Rule: "rule 1", Reason: "not here"}, d, "the list is the policy's own")
}

// TestOwnFolders holds that what the runtime stands on is closed to every tool that names paths, whatever the rules and
// the thread allow.
func TestOwnFolders(t *testing.T) {
	o, err := NewOwner([]Rule{{Tool: "*", Verdict: "allow"}}, "/home/me/.config/condensate", "/data")
	require.NoError(t, err)
	for path, want := range map[string]Verdict{
		"/home/me/.config/condensate":             Deny,
		"/home/me/.config/condensate/runtime.key": Deny,
		"/home/me/.Config/Condensate/Runtime.key": Deny,
		"/data/store/x":                           Deny,
		"/data2/x":                                Allow,
		"/home/me/.config":                        Allow,
	} {
		e := event("read", false, "/home/me/a", path)
		e.Cwd, e.Allow = "/home/me", []string{"read"}
		d, err := o.Decide(t.Context(), e)
		require.NoError(t, err)
		require.Equal(t, want.String(), d.Verdict.String(), path)
		if want == Deny {
			require.Equal(t, "own-files", d.Rule)
			require.NotEmpty(t, d.Reason)
		}
	}
}

// FuzzGlob holds that a pattern made from a text by putting stars into it fits the text.
func FuzzGlob(f *testing.F) {
	f.Add("abcabc", uint8(1), uint8(3))
	f.Fuzz(func(t *testing.T, text string, from, to uint8) {
		if strings.Contains(text, "*") {
			return
		}
		i := min(int(from), len(text))
		j := max(i, min(int(to), len(text)))
		require.True(t, glob(text[:i]+"*"+text[j:], text))
		require.False(t, glob("x"+text, text))
	})
}
