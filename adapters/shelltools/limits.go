package shelltools

import (
	"time"

	"condensate.dev/cnd/core/record"
)

// Limits of the tools. What is over a limit is cut and the result says so, unless the comment says otherwise.
const (
	// MaxOutput is the most text of a result, in bytes.
	MaxOutput = record.InlineLimit
	// MaxName is the longest path or pattern in an input, in bytes; a longer one is an error result.
	MaxName = 4096
	// MaxFile is the largest file that edit changes and write makes, in bytes; a larger one is an error result.
	MaxFile = 8 << 20
	// MaxReplaced is the largest file that write replaces, in bytes; a larger one is an error result.
	MaxReplaced = 256 << 20
	// MaxScanned is how far read looks for a line into a file, in bytes.
	MaxScanned = 256 << 20
	// MaxLines is how many lines read shows when the call does not say.
	MaxLines = 2000
	// MaxLine is the longest line that read shows, in bytes.
	MaxLine = 2000
	// MaxImage is the largest image that read shows, in bytes; a larger one is an error result, because providers
	// refuse the whole request.
	MaxImage = 3_750_000
	// MaxImageSide is the most pixels of an image in each direction, for the same reason.
	MaxImageSide = 8000
	// MaxFound is how many paths glob and grep list.
	MaxFound = 1000
	// MaxMatches is how many matching lines grep shows.
	MaxMatches = 2000
	// MaxMatchLine is the longest line that grep shows, in bytes.
	MaxMatchLine = 500
	// MaxContext is the most lines that grep shows around a match.
	MaxContext = 20
	// MaxSearched is the largest file that grep looks into, in bytes; larger ones are counted.
	MaxSearched = 16 << 20
	// MaxBraces is the most alternatives ("{") in a pattern; more is an error result, since their cost multiplies.
	MaxBraces = 4
	// WalkTimeout is how long glob and grep look.
	WalkTimeout = 30 * time.Second
	// MaxCommand is the longest command of bash, in bytes; a longer one is an error result. Linux takes no longer
	// argument.
	MaxCommand = 128<<10 - 1
)
