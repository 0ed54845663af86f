package simprovider

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
)

// maxSeededSteps is the most answers that a seeded turn has; the last one ends it.
const maxSeededSteps = 6

// seededAnswer makes an answer that depends on the seed and the body alone: a random walk of text, thinking and calls
// of the tools that the request declares, with inputs that do no harm.
func seededAnswer(seed uint64, body []byte, c *conversation) answer {
	sum := sha256.Sum256(body)
	rng := rand.New(rand.NewPCG(seed, binary.BigEndian.Uint64(sum[:])))
	var a answer
	if rng.IntN(3) == 0 {
		a.Blocks = append(a.Blocks, answerBlock{Type: "thinking", Text: words(rng, 3+rng.IntN(30))})
	}
	if rng.IntN(10) == 0 {
		a.Blocks = append(a.Blocks, answerBlock{Type: "redacted_thinking", Text: signature(words(rng, 3))})
	}
	calls := 0
	if len(c.tools) > 0 && c.step < maxSeededSteps-1 && rng.IntN(3) > 0 {
		calls = 1 + rng.IntN(3)
	}
	if calls == 0 || rng.IntN(2) == 0 {
		a.Blocks = append(a.Blocks, answerBlock{Type: "text", Text: words(rng, 1+rng.IntN(60))})
	}
	for range calls {
		name := c.tools[rng.IntN(len(c.tools))].Name
		a.Blocks = append(a.Blocks, answerBlock{Type: "tool_use", Name: name, Input: seededInput(rng, name)})
	}
	a.StopReason = "end_turn"
	if calls > 0 {
		a.StopReason = "tool_use"
	}
	return a
}

func seededInput(rng *rand.Rand, tool string) string {
	file := fmt.Sprintf("file-%d.txt", rng.IntN(8))
	switch tool {
	case "bash":
		return fmt.Sprintf(`{"command":"echo %s"}`, words(rng, 3))
	case "read":
		return fmt.Sprintf(`{"path":%q}`, file)
	case "write":
		return fmt.Sprintf(`{"path":%q,"content":%q}`, file, words(rng, 5+rng.IntN(40)))
	case "edit":
		return fmt.Sprintf(`{"path":%q,"old_string":%q,"new_string":%q}`, file, words(rng, 1), words(rng, 1))
	case "glob":
		return `{"pattern":"*.txt"}`
	case "grep":
		return fmt.Sprintf(`{"pattern":%q}`, words(rng, 1))
	default:
		return "{}"
	}
}

var vocabulary = strings.Fields("the record keeps every message before it acts so a crash loses nothing and each request " +
	"can be built again from what was written é ü 漢字 🙂 tests prove that prefix cache seed walk entry head block")

func words(rng *rand.Rand, n int) string {
	picked := make([]string, n)
	for i := range picked {
		picked[i] = vocabulary[rng.IntN(len(vocabulary))]
	}
	return strings.Join(picked, " ")
}
