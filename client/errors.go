package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"condensate.dev/cnd/core/fault"
)

// Codes of faults that are made here.
const (
	// CodeUnreachable: no runtime answered, so nothing was sent.
	CodeUnreachable = "runtime-unreachable"
	// CodeAnswerLost: the connection broke after the request was sent. Whether it took effect is not known; with the
	// same ids it can be sent again.
	CodeAnswerLost = "answer-lost"
	// CodeStrangeAnswer: what answered does not speak the runtime's API.
	CodeStrangeAnswer = "strange-answer"
)

func unreachable(why string) error {
	return fault.WithHint(fault.New(fault.Unavailable, CodeUnreachable, "the runtime is not reachable: "+why),
		"start it with cnd-runtime serve")
}

// lost classifies a failure of the connection. A context that ended stays what it is.
func lost(ctx context.Context, addr string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return unreachable(op.Error())
	}
	return fault.WithHint(fault.New(fault.Unavailable, CodeAnswerLost, fmt.Sprintf("the connection to %s broke before the answer: %v", addr, err)),
		"repeat it with the same ids: what was accepted is not done twice")
}

// refusal reads the fault of an answer.
func (c *Client) refusal(answer *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<20)) // a short text does not parse
	if err := parseFault(text); err != nil {
		if fault.ClassOf(err) == fault.Unauthenticated && c.keyFile != "" {
			return fault.WithHint(err, "the key came from "+c.keyFile+"; set CONDENSATE_CONFIG_DIR to the runtime's configuration folder")
		}
		return err
	}
	return strange(fmt.Sprintf("%s answered %s without an error of the runtime's API", answer.Request.URL.Host, answer.Status))
}

// parseFault reads {"error":{…}}; it returns nil for anything else.
func parseFault(text []byte) error {
	var body struct {
		Error *struct{ Class, Code, Message, Hint string }
	}
	if json.Unmarshal(text, &body) != nil || body.Error == nil {
		return nil
	}
	class, _ := fault.ParseClass(body.Error.Class) // one of a newer runtime is internal here
	return &fault.Error{Class: class, Code: body.Error.Code, Message: body.Error.Message, Hint: body.Error.Hint}
}

func strange(why string) error {
	return fault.WithHint(fault.New(fault.Unavailable, CodeStrangeAnswer, why), "does another program listen there?")
}
