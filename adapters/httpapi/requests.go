package httpapi

import (
	"path/filepath"
	"regexp"

	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// byOwner is who acts through the bearer key.
const byOwner = "owner"

// Limits of the fields of requests.
const (
	// MaxName is the longest title, model, account, tool and command id, in bytes.
	MaxName = 256
	// MaxReason is the longest reason of an approval, in bytes.
	MaxReason = 4 << 10
	// MaxAllow is how many tools a thread may be allowed at its start.
	MaxAllow = 64
)

// nameForm is what an id of a command looks like.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,256}$`)

// callForm is "<request seq>.<index>".
var callForm = regexp.MustCompile(`^(0|[1-9][0-9]{0,15})\.(0|[1-9][0-9]{0,5})$`)

// name returns a string of at most MaxName bytes.
func (v value) name() (string, error) {
	s, err := v.text()
	if err == nil && len(s) > MaxName {
		err = malformed(v.path, "over %d bytes", MaxName)
	}
	return s, err
}

// decodeThread reads the body of POST /v1/threads.
func decodeThread(body []byte) (r ThreadRequest, err error) {
	v, err := parse(body)
	if err != nil {
		return r, err
	}
	fields, err := v.object("id", "title", "cwd", "model", "account", "allow", "resume")
	if err != nil {
		return r, err
	}
	if id, ok := fields["id"]; ok {
		s, err := id.text()
		if err != nil {
			return r, err
		}
		if r.ID, err = record.ParseThreadID(s); err != nil {
			return r, malformed("id", "%.80q is not thr_ and 26 of 0-9a-hjkmnp-tv-z", s)
		}
	}
	for _, f := range []struct {
		name string
		into *string
	}{{"title", &r.Title}, {"model", &r.Model}, {"account", &r.Account}} {
		if *f.into, err = fields[f.name].name(); err != nil {
			return r, err
		}
	}
	if r.Cwd, err = fields["cwd"].text(); err != nil {
		return r, err
	}
	if !filepath.IsAbs(r.Cwd) {
		return r, malformed("cwd", "an absolute path is needed")
	}
	if allow, ok := fields["allow"]; ok {
		items, err := allow.array(MaxAllow)
		if err != nil {
			return r, err
		}
		for _, item := range items {
			tool, err := item.name()
			if err != nil {
				return r, err
			}
			if tool == "" {
				return r, malformed(item.path, "is empty")
			}
			r.Allow = append(r.Allow, tool)
		}
	}
	if resume, ok := fields["resume"]; ok {
		if r.Resume, err = resume.oneOf("auto", "ask"); err != nil {
			return r, err
		}
	}
	return r, nil
}

// decodeMessage reads the body of POST …/messages.
func decodeMessage(body []byte) (m loop.Message, err error) {
	v, err := parse(body)
	if err != nil {
		return m, err
	}
	fields, err := v.object("id", "mode", "content")
	if err != nil {
		return m, err
	}
	if id, ok := fields["id"]; ok {
		if m.ID, err = id.text(); err != nil {
			return m, err
		}
		if !record.ValidID(record.PrefixMessage, m.ID) {
			return m, malformed("id", "%.80q is not msg_ and 26 of 0-9a-hjkmnp-tv-z", m.ID)
		}
	}
	m.By = byOwner
	if m.Mode, err = fields["mode"].oneOf(thread.ModeQueue, thread.ModeSteer, thread.ModeStartIfIdle, thread.ModeReject); err != nil {
		return m, err
	}
	content, ok := fields["content"]
	if !ok {
		return m, malformed("content", "is missing")
	}
	m.Content, m.Blobs, err = decodeContent(content)
	return m, err
}

// decodeInterrupt reads the body of POST …/interrupt: the id of the command, which makes it safe to repeat.
func decodeInterrupt(body []byte) (id string, err error) {
	v, err := parse(body)
	if err != nil {
		return "", err
	}
	fields, err := v.object("id")
	if err != nil {
		return "", err
	}
	if id, err = fields["id"].text(); err != nil {
		return "", err
	}
	if !nameForm.MatchString(id) {
		return "", malformed("id", "1 to %d of A-Za-z0-9_.:- are needed", MaxName)
	}
	return id, nil
}

// decodeAnswer reads the body of POST …/approvals/{call}.
func decodeAnswer(body []byte) (a thread.ApprovalAnswered, err error) {
	v, err := parse(body)
	if err != nil {
		return a, err
	}
	fields, err := v.object("verdict", "reason")
	if err != nil {
		return a, err
	}
	verdict, ok := fields["verdict"]
	if !ok {
		return a, malformed("verdict", "is missing, allow or deny is needed")
	}
	a.By = byOwner
	if a.Verdict, err = verdict.oneOf(thread.VerdictAllow, thread.VerdictDeny); err != nil {
		return a, err
	}
	if a.Reason, err = fields["reason"].text(); err != nil {
		return a, err
	}
	if len(a.Reason) > MaxReason {
		return a, malformed("reason", "over %d bytes", MaxReason)
	}
	return a, nil
}
