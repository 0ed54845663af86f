package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"condensate.dev/cnd/core/record"
)

// entries answers with a page of stored lines, verbatim: {"entries":[…],"head":N,"more":false}.
func (a *api) entries(w http.ResponseWriter, r *http.Request) error {
	id, err := threadID(r)
	if err != nil {
		return err
	}
	q, err := query(r, "after", "limit")
	if err != nil {
		return err
	}
	limit, err := q.limit()
	if err != nil {
		return err
	}
	from, err := q.from()
	if err != nil {
		return err
	}
	head, err := a.Store.Head(r.Context(), id)
	if err != nil {
		return fmt.Errorf("entries of %s: %w", id, err)
	}
	page, more := []byte(nil), false
	if from <= head.Seq {
		if page, more, err = a.page(r.Context(), id, from, limit); err != nil {
			return fmt.Errorf("entries of %s: %w", id, err)
		}
	}
	a.write(w, http.StatusOK, fmt.Appendf(nil, `{"entries":[%s],"head":%d,"more":%t}`+"\n", page, head.Seq, more))
	return nil
}

// page returns the lines from seq on, at most limit and not many over MaxPageBytes, with commas between them; more
// says that there are further ones. A line that cannot be read ends the page before it and fails the next one.
func (a *api) page(ctx context.Context, id record.ThreadID, from record.Seq, limit int) (lines []byte, more bool, err error) {
	n := 0
	for e, err := range record.ReadThrough(ctx, a.Store, id, from) {
		if err != nil && n == 0 {
			return nil, false, err
		}
		if err != nil || n == limit || (n > 0 && len(lines)+len(e.Line) > MaxPageBytes) {
			return lines, true, nil
		}
		if n > 0 {
			lines = append(lines, ',')
		}
		lines = append(lines, e.Line...)
		n++
	}
	return lines, false, nil
}

// export streams the thread's export. When it breaks, so does the connection: the client sees no clean end, and the
// export has no signed head.
func (a *api) export(w http.ResponseWriter, r *http.Request) error {
	id, err := threadID(r)
	if err != nil {
		return err
	}
	if _, err := query(r); err != nil {
		return err
	}
	out := &exportWriter{w: w}
	err = a.Export(r.Context(), id, out)
	if err != nil && out.started {
		a.Logger.WarnContext(r.Context(), "export broke off", slog.String("thread", string(id)), slog.Any("err", err))
		panic(http.ErrAbortHandler)
	}
	return err
}

// exportWriter starts the answer with the first byte and gives each write StallTimeout.
type exportWriter struct {
	w       http.ResponseWriter
	started bool
}

func (e *exportWriter) Write(b []byte) (int, error) {
	if !e.started {
		e.started = true
		e.w.Header().Set("Content-Type", typeNDJSON)
		e.w.Header().Set("Cache-Control", "no-store")
		e.w.Header().Set("X-Content-Type-Options", "nosniff")
	}
	setWriteDeadline(e.w)
	return e.w.Write(b)
}

// importThread stores the export in the body, which may have any length.
func (a *api) importThread(w http.ResponseWriter, r *http.Request) error {
	if err := checkType(r, typeNDJSON); err != nil {
		return err
	}
	imported, err := a.Import(r.Context(), &importReader{r: r.Body, w: w})
	if damage := (*record.Damage)(nil); errors.As(err, &damage) && damage.Line > 0 {
		return withStatus(http.StatusUnprocessableEntity, fmt.Errorf("import: %w", err)) // of the body, not of our store
	}
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	w.Header().Set("Location", "/v1/threads/"+string(imported.Thread))
	a.writeJSON(w, http.StatusCreated, struct {
		ID   record.ThreadID `json:"id"`
		Seq  record.Seq      `json:"seq"`
		Hash string          `json:"hash"`
	}{imported.Thread, imported.Head.Seq, imported.Head.Hash.String()})
	return nil
}

// importReader gives each read StallTimeout.
type importReader struct {
	r     io.Reader
	w     http.ResponseWriter
	ended bool // after it a deadline would end the request's context
}

func (i *importReader) Read(b []byte) (int, error) {
	if i.ended {
		return 0, io.EOF
	}
	setReadDeadline(i.w, StallTimeout)
	n, err := i.r.Read(b)
	i.ended = err == io.EOF
	if err != nil && !i.ended {
		err = fmt.Errorf("%v: %w", err, errBrokeOff)
	}
	return n, err
}
