package httpapi

import (
	"fmt"
	"net/http"

	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// Limits of pages.
const (
	// DefaultPage is how many items a page has when the client does not say.
	DefaultPage = 100
	// MaxPage is the most items of a page; a greater limit is refused.
	MaxPage = 1000
	// MaxPageBytes ends a page of entries early: no further entry is added beyond it.
	MaxPageBytes = 4 << 20
)

func (a *api) health(w http.ResponseWriter, r *http.Request) error {
	h := a.Health(r.Context())
	status := http.StatusOK
	if !h.Ready {
		status = http.StatusServiceUnavailable
	}
	a.writeJSON(w, status, h)
	return nil
}

func (a *api) createThread(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r, MaxBody)
	if err != nil {
		return err
	}
	request, err := decodeThread(body)
	if err != nil {
		return err
	}
	n, err := a.NewThread(r.Context(), request)
	if err != nil {
		return err
	}
	id, err := a.Host.Create(r.Context(), n)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/threads/"+string(id))
	a.writeJSON(w, http.StatusCreated, struct {
		ID record.ThreadID `json:"id"`
	}{id})
	return nil
}

func (a *api) listThreads(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "after", "limit")
	if err != nil {
		return err
	}
	limit, err := q.limit()
	if err != nil {
		return err
	}
	var after record.ThreadID
	if s, ok := q["after"]; ok {
		if after, err = record.ParseThreadID(s); err != nil {
			return fmt.Errorf("after: %w", err)
		}
	}
	page := struct {
		Threads []thread.Summary `json:"threads"`
		More    bool             `json:"more"`
	}{Threads: []thread.Summary{}}
	for s, err := range a.Threads.Summaries(r.Context(), after) {
		if err != nil {
			return fmt.Errorf("list threads: %w", err)
		}
		if len(page.Threads) == limit {
			page.More = true
			break
		}
		page.Threads = append(page.Threads, s)
	}
	a.writeJSON(w, http.StatusOK, page)
	return nil
}

func (a *api) showThread(w http.ResponseWriter, r *http.Request) error {
	id, err := threadID(r)
	if err != nil {
		return err
	}
	if _, err := query(r); err != nil {
		return err
	}
	s, err := a.Threads.Summary(r.Context(), id)
	if err != nil {
		return fmt.Errorf("show %s: %w", id, err)
	}
	a.writeJSON(w, http.StatusOK, s)
	return nil
}

func (a *api) submit(w http.ResponseWriter, r *http.Request) error {
	return a.command(w, r, MaxMessageBody, func(id record.ThreadID, body []byte) (loop.Receipt, error) {
		m, err := decodeMessage(body)
		if err != nil {
			return loop.Receipt{}, err
		}
		return a.Host.Submit(r.Context(), id, m)
	})
}

func (a *api) interrupt(w http.ResponseWriter, r *http.Request) error {
	return a.command(w, r, MaxBody, func(id record.ThreadID, body []byte) (loop.Receipt, error) {
		command, err := decodeInterrupt(body)
		if err != nil {
			return loop.Receipt{}, err
		}
		return a.Host.Interrupt(r.Context(), id, byOwner, command)
	})
}

func (a *api) resume(w http.ResponseWriter, r *http.Request) error {
	return a.command(w, r, 0, func(id record.ThreadID, _ []byte) (loop.Receipt, error) {
		return a.Host.Resume(r.Context(), id)
	})
}

func (a *api) answer(w http.ResponseWriter, r *http.Request) error {
	call := r.PathValue("call")
	if !callForm.MatchString(call) {
		return malformed("call", "%.80q is not <request seq>.<index>", call)
	}
	return a.command(w, r, MaxBody, func(id record.ThreadID, body []byte) (loop.Receipt, error) {
		answered, err := decodeAnswer(body)
		if err != nil {
			return loop.Receipt{}, err
		}
		answered.Call = call
		return a.Host.Answer(r.Context(), id, answered)
	})
}

// command answers 202 with the receipt of what do had the loop write. A limit of 0 takes no body.
func (a *api) command(w http.ResponseWriter, r *http.Request, limit int64, do func(record.ThreadID, []byte) (loop.Receipt, error)) error {
	id, err := threadID(r)
	if err != nil {
		return err
	}
	body, err := readBody(w, r, limit)
	if err != nil {
		return err
	}
	receipt, err := do(id, body)
	if err != nil {
		return err
	}
	a.writeJSON(w, http.StatusAccepted, receipt)
	return nil
}

func (a *api) follow(w http.ResponseWriter, r *http.Request) error {
	id, err := threadID(r)
	if err != nil {
		return err
	}
	return a.Follow.Serve(w, r, id)
}

func (a *api) reindex(w http.ResponseWriter, r *http.Request) error {
	if _, err := readBody(w, r, 0); err != nil {
		return err
	}
	n, err := a.Reindex(r.Context())
	if err != nil {
		return fmt.Errorf("reindex: %w", err)
	}
	a.writeJSON(w, http.StatusOK, struct {
		Threads int `json:"threads"`
	}{n})
	return nil
}

func threadID(r *http.Request) (record.ThreadID, error) {
	return record.ParseThreadID(r.PathValue("id"))
}
