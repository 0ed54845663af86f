package httpapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
)

// TestStatusTableIsTotal has a status of an error for every class.
func TestStatusTableIsTotal(t *testing.T) {
	for _, class := range fault.Classes() {
		status, ok := statusOf[class]
		require.True(t, ok, class)
		require.GreaterOrEqual(t, status, 400, class)
	}
	require.Len(t, statusOf, len(fault.Classes()))
}

// TestErrorsKeepClassCodeAndHint shows what a client gets of failures behind the API.
func TestErrorsKeepClassCodeAndHint(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		body   string
	}{
		{fmt.Errorf("list: %w", record.ErrNotFound), 404,
			`{"error":{"class":"not_found","code":"no-such-thread","message":"list threads: list: no such thread"}}`},
		{fault.WithHint(fmt.Errorf("append: %w", fault.New(fault.StorageFull, "disk-low", "disk is low")), "free <some> space"), 507,
			`{"error":{"class":"storage_full","code":"disk-low","message":"list threads: append: disk is low","hint":"free <some> space"}}`},
		{errors.New("boom"), 500, `{"error":{"class":"internal","code":"internal","message":"list threads: boom"}}`},
		{context.DeadlineExceeded, 503,
			`{"error":{"class":"unavailable","code":"interrupted","message":"list threads: context deadline exceeded"}}`},
		{record.ErrReadOnly, 503, ""},
		{record.ErrConflict, 409, ""},
	} {
		b := newBed(t)
		b.err = c.err
		answer := b.ask("GET", "/v1/threads", "", nil)
		require.Equal(t, c.status, answer.status)
		if c.body != "" {
			require.Equal(t, c.body+"\n", answer.text)
		}
		require.Equal(t, c.status == 500, strings.Contains(b.log.String(), "err="), "failures of ours, and only they, are logged: %s", b.log.String())
	}
}
