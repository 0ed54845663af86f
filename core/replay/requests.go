package replay

import (
	"context"
	"fmt"
	"iter"
	"time"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// Request is a request.prepared with its place.
type Request struct {
	Seq  record.Seq `json:"seq"`
	Time time.Time  `json:"time"`
	thread.RequestPrepared
	Erased bool `json:"erased,omitempty"` // the body of the entry is erased: all else is unknown
}

// Requests yields the requests of a thread as they were recorded.
func Requests(ctx context.Context, src Source) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		for e, err := range src.Entries(ctx, 0) {
			if err != nil {
				yield(Request{}, err)
				return
			}
			if e.Kind != record.RequestPrepared {
				continue
			}
			r := Request{Seq: e.Seq, Time: e.Time, Erased: e.Body == nil}
			if !r.Erased {
				if r.RequestPrepared, err = thread.Decode[thread.RequestPrepared](e); err != nil {
					yield(Request{}, fmt.Errorf("list requests: %w", err))
					return
				}
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}
