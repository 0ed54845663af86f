package record_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// TestEveryBit flips each bit of a record that has a line of every sort, and every 31st bit of the other golden
// records: verification fails and names the line.
func TestEveryBit(t *testing.T) {
	for name := range goldens {
		export := golden(t, name)
		require.LessOrEqual(t, len(export), 20<<10)
		step := 31
		if name == "small" {
			step = 1
		}
		var wait sync.WaitGroup
		workers := runtime.GOMAXPROCS(0)
		for worker := range workers {
			wait.Go(func() { flip(t, name, bytes.Clone(export), worker*step, workers*step) })
		}
		wait.Wait()
	}
}

// flip changes each step-th bit from the first one on, one at a time.
func flip(t *testing.T, name string, export []byte, first, step int) {
	for bit := first; bit < 8*len(export); bit += step {
		want := int64(bytes.Count(export[:bit/8], []byte("\n")) + 1)
		export[bit/8] ^= 1 << (bit % 8)
		if err := verify(export); damagedLine(err) != want {
			t.Errorf("%s: bit %d of byte %d: got %v, want damage at line %d", name, bit%8, bit/8, err, want)
		}
		export[bit/8] ^= 1 << (bit % 8)
	}
}

// mutation is a record that somebody changed.
type mutation struct {
	name   string
	export []byte
}

// mutations returns one of each class for every place of the record; other is a record to take lines from.
func mutations(export, other []byte) []mutation {
	var all []mutation
	add := func(name string, parts ...[]byte) {
		if m := bytes.Join(parts, nil); !bytes.Equal(m, export) {
			all = append(all, mutation{name, m})
		}
	}
	own, foreign := lines(export), lines(other)
	for i, line := range own {
		at := lineName(i + 1)
		before, after := bytes.Join(own[:i], nil), bytes.Join(own[i+1:], nil)
		bare := line[:len(line)-1]
		add("delete "+at, before, after)
		add("duplicate "+at, before, line, line, after)
		if i+1 < len(own) {
			add("swap "+at, before, own[i+1], line, bytes.Join(own[i+2:], nil))
		}
		add("cut before "+at, before)
		add("cut within "+at, before, line[:len(line)/2])
		add("cut the newline of "+at, before, bare)
		add("lose the middle of "+at, before, line[:len(line)/3], line[len(line)/2:], after)
		add("blank line before "+at, before, []byte("\n"), line, after)
		add("space after "+at, before, bare, []byte(" \n"), after)
		add("CRLF after "+at, before, bare, []byte("\r\n"), after)
		add("NUL after "+at, before, bare, []byte("\x00\n"), after)
		add("space in "+at, before, bytes.Replace(line, []byte(":"), []byte(": "), 1), after)
		add("upper case in "+at, before, upperHex(line), after)
		add("leading zero in "+at, before, bytes.Replace(line, []byte(`"seq":`), []byte(`"seq":0`), 1), after)
		add("escape in "+at, before, bytes.Replace(line, []byte("condensate"), []byte(`\u0063ondensate`), 1), after)
		add("blank body of "+at, before, body.ReplaceAll(line, []byte(`$1{}}`+"\n")), after)
		add("erase "+at, before, salted.ReplaceAll(line, fmt.Appendf(nil, "\"erased\":%d}\n", len(own))), after)
		if i < len(foreign) {
			add("splice in "+at, before, foreign[i], after)
			if i > 0 {
				add("splice the tail from "+at, before, bytes.Join(foreign[i:], nil))
			}
		}
	}
	add("another head", bytes.Join(own[:len(own)-1], nil), foreign[len(foreign)-1])
	add("two heads", export, own[len(own)-1])
	add("byte order mark", []byte("\ufeff"), export)
	return all
}

var (
	body   = regexp.MustCompile(`("body":).*\n`)
	salted = regexp.MustCompile(`"salt":.*\n`)
	digits = regexp.MustCompile(`"(hash|blob)":"(sha256:)?[0-9a-f]+"`)
)

func upperHex(line []byte) []byte {
	at := digits.FindIndex(line)
	if at == nil {
		return line
	}
	return slices.Concat(line[:at[0]+15], bytes.ToUpper(line[at[0]+15:at[1]]), line[at[1]:])
}

// forgeries returns records whose lines are all in order and that only the signed head gives away.
func forgeries(t *testing.T, export []byte) []mutation {
	t.Helper()
	own := lines(export)
	var last record.Entry
	entry := len(own) - 2
	last, err := record.Parse(bytes.TrimSuffix(own[entry], []byte("\n")))
	require.NoError(t, err)
	seal := func(after record.Head, text string) record.Entry {
		e, err := record.Seal(last.Thread, after, record.Salt{}, record.Draft{Gen: last.Gen, Time: last.Time, Kind: record.NoteInjected, Body: []byte(text)})
		require.NoError(t, err)
		return e
	}
	chained := append(seal(last.Head(), `{"text":"one more"}`).Line, '\n')
	changed := seal(record.Head{Seq: last.Seq - 1, Hash: last.Prev}, `{"text":"other"}`)
	start, head := bytes.Join(own[:entry], nil), own[entry+1]
	claim, err := record.ParseHeadLine(bytes.TrimSuffix(head, []byte("\n")))
	require.NoError(t, err)
	claim.Hash = changed.Hash
	return []mutation{
		{"append a line that chains after the head", slices.Concat(export, chained)},
		{"append a line that chains before the head", slices.Concat(start, own[entry], chained, head)},
		{"replace the last entry by one that chains", slices.Concat(start, changed.Line, []byte("\n"), head)},
		{"name the new entry in the head only", slices.Concat(start, changed.Line, []byte("\n"), claim.AppendLine(nil), []byte("\n"))},
	}
}

// TestMutations shows that no change of a record verifies.
func TestMutations(t *testing.T) {
	for name := range goldens {
		export := golden(t, name)
		for _, m := range append(mutations(export, golden(t, otherThan(name))), forgeries(t, export)...) {
			err := verify(m.export)
			var damage *record.Damage
			require.ErrorAs(t, err, &damage, "%s: %s", name, m.name)
			if len(m.export) > 0 {
				require.Positive(t, damage.Line, "%s: %s: %v", name, m.name, err)
			}
		}
	}
}

func otherThan(name string) string {
	if name == "turn" {
		return "tools"
	}
	return "turn"
}

// TestScript holds scripts/verify-record.sh, which shares no code with us, against our verifier: on the golden records,
// on every class of mutation and on sampled bits. Both must name the same line. The script does not check the
// signature, so flips that only change that are left out.
func TestScript(t *testing.T) {
	dir := t.TempDir()
	var all []mutation
	for name := range goldens {
		export := golden(t, name)
		all = append(all, mutation{name, export})
		every := mutations(export, golden(t, otherThan(name)))
		if name != "small" { // one in eleven: each class, at other places in each record
			for i := range every {
				if i*11 < len(every) {
					every[i] = every[i*11]
				}
			}
			every = every[:(len(every)+10)/11]
		}
		for _, m := range append(every, forgeries(t, export)...) {
			all = append(all, mutation{name + ": " + m.name, m.export})
		}
	}
	all = append(all, sampledBits(t, 200)...)

	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wait sync.WaitGroup
	for i, m := range all {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			path := filepath.Join(dir, strconv.Itoa(i))
			if err := os.WriteFile(path, m.export, 0o600); err != nil {
				t.Error(err)
				return
			}
			ours := verify(m.export)
			if theirs := script(path); !agree(ours, theirs) {
				t.Errorf("%s: ours %v, the script: %v", m.name, ours, theirs)
			}
		})
	}
	wait.Wait()
}

// sampledBits returns records with one flipped bit that is not in the signature.
func sampledBits(t *testing.T, n int) []mutation {
	dice := rand.New(rand.NewPCG(1, 2))
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range goldens {
			if !yield(name) {
				return
			}
		}
	})
	var all []mutation
	for len(all) < n {
		name := names[dice.IntN(len(names))]
		export := golden(t, name)
		signature := bytes.LastIndex(export, []byte("—"))
		bit := dice.IntN(8 * len(export))
		if bit/8 > signature && bit/8 < len(export)-len("\\n\"}\n") {
			continue
		}
		export[bit/8] ^= 1 << (bit % 8)
		all = append(all, mutation{fmt.Sprintf("%s: bit %d of byte %d", name, bit%8, bit/8), export})
	}
	return all
}

// verdict is what the script says.
type verdict struct {
	code int
	line int64
	text string
}

func (v *verdict) Error() string { return fmt.Sprintf("exit %d: %s", v.code, v.text) }

var namedLine = regexp.MustCompile(`line (\d+)`)

// script runs scripts/verify-record.sh; nil means verified.
func script(path string) error {
	cmd := exec.Command("sh", "../../scripts/verify-record.sh", path)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	if err == nil {
		return nil
	}
	v := &verdict{code: -1, text: stderr.String()}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		v.code = exit.ExitCode()
	}
	if m := namedLine.FindStringSubmatch(v.text); m != nil {
		v.line, _ = strconv.ParseInt(m[1], 10, 64)
	}
	return v
}

// agree says whether both verified, or both refused with the same exit code and named the same line.
func agree(ours, theirs error) bool {
	var d *record.Damage
	var v *verdict
	if !errors.As(ours, &d) || !errors.As(theirs, &v) {
		return ours == nil && theirs == nil
	}
	code := map[fault.Class]int{fault.Invalid: 65, fault.Corrupt: 74}[fault.ClassOf(ours)]
	return v.code == code && v.line == d.Line
}

// TestScriptUsage shows the script's other exits.
func TestScriptUsage(t *testing.T) {
	var v *verdict
	require.ErrorAs(t, script(filepath.Join(t.TempDir(), "absent")), &v)
	require.Equal(t, 66, v.code)
	require.ErrorAs(t, script(t.TempDir()), &v)
	require.Equal(t, 66, v.code)
	require.NoError(t, script(filepath.Join(goldenDir, "turn.jsonl")))
}

// TestOtherKey shows that a whole record signed anew does not pass for the old one.
func TestOtherKey(t *testing.T) {
	thief := recordtest.NewSigner("condensate.dev/record", 2)
	own := lines(golden(t, "turn"))
	h, err := record.ParseHeadLine(bytes.TrimSuffix(own[len(own)-1], []byte("\n")))
	require.NoError(t, err)
	stolen, err := record.SignHead(thief, h.Thread, h.Place(), h.Prev)
	require.NoError(t, err)
	export := append(bytes.Join(own[:len(own)-1], nil), append(stolen.AppendLine(nil), '\n')...)
	require.ErrorIs(t, verify(export), record.ErrHead)

	_, err = record.VerifyExport(bytes.NewReader(export), record.VerifyOptions{Opener: signer, Key: thief.VerifierKey()}, nil)
	require.NoError(t, err, "pinned to the other key it is a record of that one")
	_, err = record.VerifyExport(bytes.NewReader(golden(t, "turn")), record.VerifyOptions{Opener: signer, Key: thief.VerifierKey()}, nil)
	require.ErrorIs(t, err, record.ErrHead)
}
