package shelltools

import (
	"encoding/json"

	"condensate.dev/cnd/core/thread"
)

// Names of the tools.
const (
	nameRead  = "read"
	nameWrite = "write"
	nameEdit  = "edit"
	nameGlob  = "glob"
	nameGrep  = "grep"
	nameBash  = "bash"
)

var names = []string{nameRead, nameWrite, nameEdit, nameGlob, nameGrep, nameBash}

// Specs implements [loop.Tools].
func (t *Tools) Specs() []thread.ToolSpec {
	spec := func(name, description, schema string) thread.ToolSpec {
		return thread.ToolSpec{Name: name, Description: description, InputSchema: json.RawMessage(schema)}
	}
	return []thread.ToolSpec{
		spec(nameRead, `Reads a file. Text comes as numbered lines: at most 2000 unless "limit" says otherwise, lines cut after 2000 bytes. PNG, JPEG, GIF and WebP images are shown. Relative paths start at the working folder.`,
			`{"type":"object","properties":{"path":{"type":"string","description":"File to read"},"offset":{"type":"integer","minimum":1,"description":"First line, counted from 1"},"limit":{"type":"integer","minimum":1,"description":"Number of lines"}},"required":["path"],"additionalProperties":false}`),
		spec(nameWrite, `Writes a file whole: makes it, with missing parent folders, or replaces its content. To change a part of a file use edit.`,
			`{"type":"object","properties":{"path":{"type":"string","description":"File to write"},"content":{"type":"string","description":"The whole new content"}},"required":["path","content"],"additionalProperties":false}`),
		spec(nameEdit, `Replaces text in a file. "old_string" must be in the file exactly as given, without the line numbers that read shows, and only once unless "replace_all" is true.`,
			`{"type":"object","properties":{"path":{"type":"string","description":"File to change"},"old_string":{"type":"string","description":"Text to replace"},"new_string":{"type":"string","description":"Text to put in its place"},"replace_all":{"type":"boolean","description":"Replace every occurrence"}},"required":["path","old_string","new_string"],"additionalProperties":false}`),
		spec(nameGlob, `Lists files whose path matches a pattern such as "**/*.go" or "src/{a,b}/*.ts", sorted by path. A pattern without "**" lists folders too, with a slash at the end. .git, .hg, .svn, .jj and node_modules are left out unless the pattern names them. Symbolic links are not followed.`,
			`{"type":"object","properties":{"pattern":{"type":"string","description":"Pattern relative to path"},"path":{"type":"string","description":"Folder to look in; the working folder by default"}},"required":["pattern"],"additionalProperties":false}`),
		spec(nameGrep, `Searches the lines of text files for a regular expression (RE2 syntax). Leaves out the same folders as glob, binary files and files over 16 MiB.`,
			`{"type":"object","properties":{"pattern":{"type":"string","description":"Regular expression"},"path":{"type":"string","description":"File or folder to search; the working folder by default"},"glob":{"type":"string","description":"Only files that match, for example \"*.go\" or \"src/**/*.ts\""},"mode":{"type":"string","enum":["content","files","count"],"description":"Show matching lines (default), only the files, or the number of matching lines of each"},"ignore_case":{"type":"boolean"},"context":{"type":"integer","minimum":0,"maximum":20,"description":"Lines to show around each match"}},"required":["pattern"],"additionalProperties":false}`),
		spec(nameBash, `Runs a command with bash in the working folder and returns what it prints, stdout and stderr together. Each command starts anew: no variable or folder change lasts. There is no terminal and no input. Processes left in the background end with the command. Ends after 2 minutes unless "timeout_ms" says otherwise (at most 10 minutes).`,
			`{"type":"object","properties":{"command":{"type":"string","description":"Command line for bash"},"timeout_ms":{"type":"integer","minimum":1,"maximum":600000,"description":"Time limit in milliseconds"}},"required":["command"],"additionalProperties":false}`),
	}
}
