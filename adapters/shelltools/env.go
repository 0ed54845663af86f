package shelltools

import (
	"os"
	"os/exec"
)

// inherited are the variables of the runtime that commands get, as far as they are set. Nothing else gets through:
// what the runtime was started with may hold keys.
var inherited = []string{"HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"}

// fixed are the variables that every command gets: there is no terminal, and nobody answers a question.
var fixed = []string{"TERM=dumb", "PAGER=cat", "GIT_PAGER=cat", "GIT_TERMINAL_PROMPT=0"}

const defaultPath = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

func environment() []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = defaultPath
	}
	env := append([]string{"PATH=" + path}, fixed...)
	for _, name := range inherited {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// shell returns the program behind bash: bash, or the system's sh where there is none.
func shell() string {
	for _, name := range []string{"/bin/bash", "bash"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return "/bin/sh"
}
