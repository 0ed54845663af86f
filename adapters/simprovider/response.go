package simprovider

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// writeTimeout bounds one write to a client that does not read.
const writeTimeout = 30 * time.Second

// defaultSlow is the time between two bytes of a slow response.
const defaultSlow = 20 * time.Millisecond

// errBroken ends a response that a fault broke.
var errBroken = errors.New("response broken on purpose")

// response writes a body and lets the fault of its request strike.
type response struct {
	w     http.ResponseWriter
	ctl   *http.ResponseController
	ctx   context.Context // the client's, ended also by the provider's Close
	fault *Fault
	sent  int
}

// write sends b at once. It returns errBroken when the fault ended the response.
func (r *response) write(b []byte) error {
	if r.fault != nil {
		switch r.fault.Kind {
		case faultStall, faultReset, faultTruncate:
			if left := r.fault.After - r.sent; left < len(b) {
				if err := r.flush(b[:max(left, 0)]); err != nil {
					return err
				}
				return r.strike()
			}
		case faultSlow:
			return r.drip(b)
		}
	}
	return r.flush(b)
}

// due says whether a fault that strikes between events must strike now.
func (r *response) due(kind string) bool {
	return r.fault != nil && r.fault.Kind == kind && r.sent >= r.fault.After
}

func (r *response) flush(b []byte) error {
	if r.ctx.Err() != nil {
		return r.ctx.Err()
	}
	r.ctl.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer has deadlines
	n, err := r.w.Write(b)
	r.sent += n
	if err != nil {
		return err
	}
	return r.ctl.Flush()
}

func (r *response) drip(b []byte) error {
	delay := time.Duration(r.fault.DelayMS) * time.Millisecond
	if delay == 0 {
		delay = defaultSlow
	}
	for i := range b {
		if err := r.flush(b[i : i+1]); err != nil {
			return err
		}
		if err := r.wait(delay); err != nil {
			return err
		}
	}
	return nil
}

// wait pauses the response.
func (r *response) wait(d time.Duration) error {
	if d <= 0 {
		return r.ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

func (r *response) strike() error {
	switch r.fault.Kind {
	case faultStall:
		<-r.ctx.Done()
	case faultReset:
		conn, _, err := r.ctl.Hijack()
		if err != nil {
			panic(http.ErrAbortHandler) // the nearest thing to a reset that this server can do
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		conn.Close()
	}
	return errBroken
}
