// Command compliance is the witness of transparency-dev, in memory, for one log. It takes the verifier
// key of the log, prints its address and its own verifier key, and serves until its input ends.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	f_note "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/witness/persistence/inmemory"
	"github.com/transparency-dev/witness/witness"
	"golang.org/x/mod/sumdb/note"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(logKey string) error {
	log, err := note.NewVerifier(logKey)
	if err != nil {
		return err
	}
	private, public, err := note.GenerateKey(rand.Reader, "witness.example")
	if err != nil {
		return err
	}
	signer, err := f_note.NewSignerForCosignatureV1(private)
	if err != nil {
		return err
	}
	cosigner, err := f_note.VKeyToCosignatureV1(public)
	if err != nil {
		return err
	}
	w, err := witness.New(context.Background(), witness.Opts{
		Persistence: inmemory.New(),
		Signers:     []note.Signer{signer},
		VerifierForLog: func(_ context.Context, origin string) (note.Verifier, bool, error) {
			return log, origin == log.Name(), nil
		},
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /add-checkpoint", witness.NewHTTPHandler(w).AddCheckpoint)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	fmt.Printf("http://%s\n%s\n", listener.Addr(), cosigner)
	if err := server.Serve(listener); err != http.ErrServerClosed {
		return err
	}
	return nil
}
