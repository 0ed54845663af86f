package record_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// TestVerifyErased shows what a missing body needs.
func TestVerifyErased(t *testing.T) {
	w := recordtest.NewWriter(1)
	all := w.Start(t, 3)
	say := func(w *recordtest.Writer, seq record.Seq, hash record.Digest, by string) record.Entry {
		return w.Seal(t, record.EntryErased, fmt.Sprintf(`{"seq":%d,"hash":"%s",%s"reason":"x"}`, seq, hash, by))
	}
	at := w.Head
	by := say(w, 1, all[1].Hash, "")
	after := w.More(t, 1)[0]
	gone := all[1].Erase(by.Seq)

	good := func(x record.Entry) [][]byte { return entryLines(all[0], x, all[2], by, after) }
	r, err := unsigned(good(gone)...)
	require.NoError(t, err)
	require.Equal(t, int64(1), r.Erased)
	_, err = unsigned(good(all[1])...)
	require.NoError(t, err, "the body may still be there: erasing it comes after saying so")

	_, err = unsigned(good(all[1].Erase(2))...)
	mustDamage(t, err, record.ErrDamaged, 2, "no entry.erased there names it")
	_, err = unsigned(good(all[1].Erase(4))...)
	mustDamage(t, err, record.ErrDamaged, 2, "no entry.erased there names it")
	_, err = unsigned(entryLines(all[0], gone, all[2])...)
	mustDamage(t, err, record.ErrDamaged, 2, "no entry.erased there names it")
	_, err = unsigned(entryLines(all[0], gone, all[2].Erase(3), by)...)
	mustDamage(t, err, record.ErrDamaged, 3, "no entry.erased there names it")
	_, err = unsigned(entryLines(all[0].Erase(3), all[1], all[2], by)...)
	mustDamage(t, err, record.ErrDamaged, 1, "is erased")

	wrong := recordtest.Writer{ID: w.ID, Head: at}
	_, err = unsigned(entryLines(all[0], gone, all[2], say(&wrong, 1, all[2].Hash, ""))...)
	mustDamage(t, err, record.ErrDamaged, 2, "no entry.erased there names it")
	wrong = recordtest.Writer{ID: w.ID, Head: at}
	_, err = unsigned(entryLines(all[0], gone, all[2], say(&wrong, 1, all[1].Hash, `"by":3,`))...)
	mustDamage(t, err, record.ErrDamaged, 2, "no entry.erased there names it")
	for _, body := range []string{`{"seq":3,"hash":"` + all[1].Hash.String() + `","reason":""}`, `{"seq":1}`, `{}`, `{"hash":"` + all[1].Hash.String() + `","seq":1,"reason":""}`} {
		wrong = recordtest.Writer{ID: w.ID, Head: at}
		_, err = unsigned(entryLines(all[0], all[1], all[2], wrong.Seal(t, record.EntryErased, body))...)
		mustDamage(t, err, record.ErrDamaged, 4, "")
	}
	for _, kind := range []record.Kind{record.EntryErased, record.ThreadForked} {
		w := recordtest.NewWriter(1)
		all := w.Start(t, 2)
		x := w
		var e record.Entry
		if kind == record.ThreadForked {
			x, e = w.Fork(t, 2)
		} else {
			e = say(w, 1, all[1].Hash, "")
		}
		_, err = unsigned(entryLines(all[0], all[1], e.Erase(3), say(x, 2, e.Hash, ""))...)
		mustDamage(t, err, record.ErrDamaged, 3, "is erased")
	}
}

// TestVerifyErasedInFork shows that a fork says itself which inherited entry its parent erased past the fork.
func TestVerifyErasedInFork(t *testing.T) {
	w := recordtest.NewWriter(1)
	all := w.Start(t, 3)
	f, forked := w.Fork(t, 2)
	gone := all[1].Erase(90)
	fork := f.Head
	say := func(by string) record.Entry {
		f := recordtest.Writer{ID: f.ID, Head: fork}
		return f.Seal(t, record.EntryErased, fmt.Sprintf(`{"seq":1,"hash":"%s",%s"reason":"x"}`, gone.Hash, by))
	}
	_, err := unsigned(entryLines(all[0], gone, all[2], forked, say(`"by":90,`))...)
	require.NoError(t, err)
	for _, by := range []string{``, `"by":91,`, `"by":4,`, `"by":0,`} {
		_, err = unsigned(entryLines(all[0], gone, all[2], forked, say(by))...)
		mustDamage(t, err, record.ErrDamaged, 2, "no entry.erased there names it")
	}
	_, err = unsigned(entryLines(all[0], all[1].Erase(4), all[2], forked, say(``))...)
	mustDamage(t, err, record.ErrDamaged, 2, "no entry.erased there names it")
}
