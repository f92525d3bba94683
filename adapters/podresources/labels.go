package podresources

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Labels reads the labels of the pods of one node from the Kubernetes API, because the kubelet's
// socket does not provide them. It needs the right to list pods.
type Labels struct {
	URL       string // of the API
	TokenFile string // read for each call, because it is rotated every hour
	CAFile    string // trusted certificates
	Node      string // name of the node in Kubernetes

	client *http.Client
}

// PodName names a pod.
type PodName struct{ Namespace, Pod string }

// Pods returns the labels of each pod on the node.
func (l *Labels) Pods(ctx context.Context) (map[PodName]map[string]string, error) {
	out, err := l.pods(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask Kubernetes for the labels of pods on %s: %w", l.Node, err)
	}
	return out, nil
}

func (l *Labels) pods(ctx context.Context) (map[PodName]map[string]string, error) {
	if l.client == nil {
		pool := x509.NewCertPool()
		pem, err := os.ReadFile(l.CAFile)
		if err != nil {
			return nil, err
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("no certificate in %s", l.CAFile)
		}
		l.client = &http.Client{
			Timeout: 10 * time.Second,
			Transport: &http.Transport{
				TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
				MaxIdleConns:    1,
				IdleConnTimeout: 20 * time.Second,
			},
		}
	}
	token, err := os.ReadFile(l.TokenFile)
	if err != nil {
		return nil, err
	}
	out := map[PodName]map[string]string{}
	for next := ""; ; {
		query := url.Values{"fieldSelector": {"spec.nodeName=" + l.Node}, "limit": {"250"}}
		if next != "" {
			query.Set("continue", next)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.URL+"/api/v1/pods?"+query.Encode(), nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		req.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
		if next, err = l.page(req, out); err != nil {
			return nil, err
		}
		if next == "" {
			return out, nil
		}
	}
}

func (l *Labels) page(req *http.Request, out map[PodName]map[string]string) (next string, err error) {
	res, err := l.client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body := io.LimitReader(res.Body, maxAnswer)
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusForbidden, http.StatusUnauthorized:
		return "", fmt.Errorf(
			"%s; give the service account the right to list pods (see deploy/node), or set kubernetes.labels to false",
			res.Status,
		)
	default:
		text, _ := io.ReadAll(io.LimitReader(body, 200))
		return "", fmt.Errorf("%s: %q", res.Status, text)
	}
	var list struct {
		Metadata struct {
			Continue string `json:"continue"`
		} `json:"metadata"`
		Items []struct {
			Metadata struct {
				Name      string            `json:"name"`
				Namespace string            `json:"namespace"`
				Labels    map[string]string `json:"labels"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return "", err
	}
	for _, item := range list.Items {
		out[PodName{item.Metadata.Namespace, item.Metadata.Name}] = item.Metadata.Labels
	}
	if len(out) > 10_000 {
		return "", errors.New("more pods than a node can have")
	}
	return list.Metadata.Continue, nil
}
