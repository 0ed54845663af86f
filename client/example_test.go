package client_test

import (
	"context"
	"fmt"
	"log"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/thread"
)

// A program makes a thread, tells the agent what to do and follows it. Here the address and the key are those of a
// runtime in the same process; a real program says client.Open(configDir, dataDir).
func Example() {
	r := newRuntime()
	if err := r.start(); err != nil {
		log.Fatal(err)
	}
	defer r.stop()
	c := client.New(r.addr, testKey)
	defer c.CloseIdle()

	ctx := context.Background()
	id, err := c.NewThread(ctx, client.NewThread{Cwd: "/srv/site"})
	if err != nil {
		log.Fatal(err)
	}
	receipt, err := c.Send(ctx, id, client.Message{Content: client.Text("fix the build")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(receipt.State)
	for event, err := range c.Follow(ctx, id, client.FollowOptions{Reconnect: true}) {
		if err != nil {
			log.Fatal(err)
		}
		if event.Type != client.EventEntry {
			continue
		}
		fmt.Println(event.Seq, event.Entry.Kind)
		if m, err := thread.Decode[thread.MessageAccepted](event.Entry); err == nil && event.Seq == receipt.Seq {
			fmt.Println(m.Content[0].Text)
			break
		}
	}
	// Output:
	// accepted
	// 0 thread.created
	// 1 message.accepted
	// fix the build
}
