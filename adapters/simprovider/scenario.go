package simprovider

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"condensate.dev/cnd/core/fault"
)

// ErrScenario is returned (wrapped) for a scenario that cannot be used.
var ErrScenario = fault.New(fault.Config, "bad-scenario", "bad scenario")

// Scenario says how the provider answers. The first rule that matches a request answers it.
type Scenario struct {
	Rules []Rule `json:"rules"`
}

// Rule answers one kind of task, step by step: step n answers the request that has n assistant messages after the last
// text of the user, and the requests after the last step get a closing sentence.
type Rule struct {
	Name string `json:"name"`
	// Text is a regular expression on the last text of the user; "" matches every text.
	Text string `json:"text,omitempty"`
	// Messages restricts the rule to requests with that many assistant messages in all.
	Messages *int   `json:"messages,omitempty"`
	Steps    []Step `json:"steps"`

	text *regexp.Regexp
}

// Step is one answer.
//
// Its texts and inputs may use ${0} (the match of Text), ${1}… (its groups), ${text} (the user's last text) and
// ${result} (what the newest tool results say, shortened). Any other ${…} stays as it is.
type Step struct {
	Blocks []ScriptBlock `json:"blocks"`
	// StopReason is "tool_use" when a block calls a tool and "end_turn" otherwise, unless it is given.
	StopReason string `json:"stop_reason,omitempty"`
	// DelayMS is the time between two pieces of a stream in milliseconds; Chunk their size in characters. 0 means the
	// provider's own.
	DelayMS int `json:"delay_ms,omitempty"`
	Chunk   int `json:"chunk,omitempty"`
	// Fault strikes the first Attempts (default 1) requests with the same body.
	Fault    *Fault `json:"fault,omitempty"`
	Attempts int    `json:"attempts,omitempty"`
}

// ScriptBlock is one content block of a step. Type is "text", "thinking", "redacted_thinking", "tool_use", or any other
// with Raw as the block.
type ScriptBlock struct {
	Type      string            `json:"type"`
	Text      string            `json:"text,omitempty"`
	Repeat    int               `json:"repeat,omitempty"` // how often Text stands in the block; 0 means once
	Name      string            `json:"name,omitempty"`
	Input     json.RawMessage   `json:"input,omitempty"`
	InputText string            `json:"input_text,omitempty"` // instead of Input: written as it is, JSON or not
	Citations []json.RawMessage `json:"citations,omitempty"`
	Raw       json.RawMessage   `json:"raw,omitempty"`
}

// MaxScenario is the largest scenario file, in bytes.
const MaxScenario = 4 << 20

// ReadScenario reads a scenario and reports all its problems at once.
func ReadScenario(r io.Reader) (*Scenario, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxScenario+1))
	if err != nil {
		return nil, fmt.Errorf("read scenario: %w", err)
	}
	if len(text) > MaxScenario {
		return nil, fmt.Errorf("scenario over %d bytes: %w", MaxScenario, ErrScenario)
	}
	s := &Scenario{}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(s); err != nil {
		return nil, fmt.Errorf("scenario: %w: %w", err, ErrScenario)
	}
	return s, s.prepare()
}

func (s *Scenario) prepare() error {
	var problems []error
	bad := func(rule *Rule, format string, args ...any) {
		problems = append(problems, fmt.Errorf("scenario rule %q: %s: %w", rule.Name, fmt.Sprintf(format, args...), ErrScenario))
	}
	for i := range s.Rules {
		rule := &s.Rules[i]
		var err error
		if rule.text, err = regexp.Compile(rule.Text); err != nil {
			bad(rule, "text: %s", err)
		}
		if len(rule.Steps) == 0 {
			bad(rule, "no steps")
		}
		for j := range rule.Steps {
			step := &rule.Steps[j]
			if len(step.Blocks) == 0 {
				bad(rule, "step %d has no blocks", j)
			}
			for _, b := range step.Blocks {
				if err := b.check(); err != nil {
					bad(rule, "step %d: %s", j, err)
				}
			}
			if step.Fault != nil {
				if err := step.Fault.check(); err != nil {
					bad(rule, "step %d: %s", j, err)
				}
			}
		}
	}
	if len(s.Rules) == 0 {
		problems = append(problems, fmt.Errorf("scenario has no rules: %w", ErrScenario))
	}
	return errors.Join(problems...)
}

func (b *ScriptBlock) check() error {
	switch b.Type {
	case "text", "thinking", "redacted_thinking":
		if b.Text == "" {
			return fmt.Errorf("%s block without text", b.Type)
		}
	case "tool_use":
		if b.Name == "" {
			return errors.New("tool_use block without a name")
		}
		if b.InputText == "" && (len(b.Input) == 0 || b.Input[0] != '{') {
			return fmt.Errorf("tool_use block of %s without an input object", b.Name)
		}
	default:
		var raw struct{ Type string }
		if json.Unmarshal(b.Raw, &raw) != nil || raw.Type != b.Type {
			return fmt.Errorf("block of type %q needs raw with that type", b.Type)
		}
	}
	return nil
}

//go:embed default.json
var defaultScenario []byte

// DefaultScenario is a small scripted coding agent that reacts to the words of the user's last message.
func DefaultScenario() *Scenario {
	s, err := ReadScenario(bytes.NewReader(defaultScenario))
	if err != nil {
		panic(err) // it is part of the program and tested
	}
	return s
}

// answer plays the scenario.
func (s *Scenario) answer(c *conversation) (answer, Step) {
	for i := range s.Rules {
		rule := &s.Rules[i]
		match := rule.text.FindStringSubmatch(c.text)
		if match == nil || (rule.Messages != nil && *rule.Messages != c.assistants) {
			continue
		}
		if c.step >= len(rule.Steps) {
			break
		}
		step := rule.Steps[c.step]
		return step.answer(c, match), step
	}
	return answer{Blocks: []answerBlock{{Type: "text", Text: "That is all I had to do."}}, StopReason: "end_turn"}, Step{}
}

func (step *Step) answer(c *conversation, match []string) answer {
	a := answer{StopReason: step.StopReason}
	expand := func(s string) string { return expand(s, c, match) }
	calls := false
	for _, b := range step.Blocks {
		out := answerBlock{Type: b.Type, Name: b.Name, Citations: b.Citations, Raw: b.Raw}
		out.Text = expand(strings.Repeat(b.Text, max(b.Repeat, 1)))
		if b.Type == "tool_use" {
			if !c.hasTool(b.Name) {
				a.Blocks = append(a.Blocks, answerBlock{Type: "text", Text: "I would call the tool " + b.Name + ", but I was not given it."})
				continue
			}
			calls = true
			out.Input = b.InputText
			if out.Input == "" {
				out.Input = expandJSON(b.Input, expand)
			}
		}
		a.Blocks = append(a.Blocks, out)
	}
	if a.StopReason == "" {
		a.StopReason = "end_turn"
		if calls {
			a.StopReason = "tool_use"
		}
	}
	return a
}
