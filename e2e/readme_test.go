package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/record"
)

// TestReadme runs the console commands of the README, as they are printed, on a thread that has come to rest. Targets
// of make are the matter of archtest; a follow, which goes on for ever, is asked to end when the thread rests.
func TestReadme(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := NewWorld(bin, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(w.Close)
	require.NoError(t, w.RepairWorld(ctx))
	id, err := w.Client().NewThread(ctx, client.NewThread{Cwd: w.Work, Allow: []string{"bash"}})
	require.NoError(t, err)
	_, err = w.Client().Send(ctx, id, client.Message{Content: client.Text(RepairMessage)})
	require.NoError(t, err)
	request := record.Seq(0)
	_, err = w.Drive(ctx, id, 0, nil, Report{Entry: func(e record.Entry) {
		if e.Kind == record.RequestPrepared {
			request = e.Seq
		}
	}})
	require.NoError(t, err)
	require.NoError(t, os.Symlink(bin, w.Dir+"/bin"))

	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	commands := 0
	for _, m := range regexp.MustCompile(`(?m)^\$ ([^#\n]+)`).FindAllStringSubmatch(string(text), -1) {
		line := strings.NewReplacer("THREAD", string(id), "--seq SEQ", fmt.Sprint("--seq ", request)).Replace(m[1])
		if strings.HasPrefix(line, "make ") || strings.HasPrefix(line, "export ") {
			continue
		}
		line = strings.Replace(line, " --json |", " --json --until-idle |", 1)
		commands++
		if _, err := exec.LookPath("jq"); err != nil && strings.Contains(line, "| jq ") {
			t.Logf("not run, there is no jq: %s", line)
			continue
		}
		sh := exec.CommandContext(ctx, "sh", "-c", line)
		sh.Dir, sh.Env = w.Dir, w.Env()
		sh.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the whole pipe ends with the test
		sh.Cancel = func() error { return syscall.Kill(-sh.Process.Pid, syscall.SIGKILL) }
		out, err := sh.CombinedOutput()
		require.NoError(t, err, "%s\n%s", line, out)
		require.NotEmpty(t, out, line)
	}
	require.Equal(t, 5, commands, "commands of the README")
}
