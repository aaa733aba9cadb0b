package heads

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/internal/audit"
)

const (
	// Name is that of the ConfigMap with the heads.
	Name = "refit-audit-heads"
	// Kept is how many heads the ConfigMap has at most when a log is added. Pods come and go, and each has a log of its own.
	Kept = 32
	// interval is how often a head is published that has moved.
	interval = 5 * time.Second
	// patience is how long the API server is waited for.
	patience = 5 * time.Second
	// complainEvery is how many intervals pass between two complaints that nothing can be published.
	complainEvery = 12
)

// Publisher publishes the heads of a log. It is a manager's Runnable, on every replica.
type Publisher struct {
	Client client.Writer
	// Live reads from the API server.
	Live client.Reader
	// Namespace is refit's own.
	Namespace string
	// Log is the name of the log: that of the pod, which stays when its container is restarted.
	Log      string
	Audit    *audit.Log
	Clock    clock.WithTicker
	Logger   logr.Logger
	Recorder events.EventRecorder

	mu     sync.Mutex
	signer ed25519.PrivateKey
	// published is the last head that the API server has from this process. Seq is 0 until there is one.
	published audit.SignedHead
	compared  bool
	failures  int

	// What metrics show, which must not wait for the API server.
	seq  atomic.Int64
	lost atomic.Bool
}

// NeedLeaderElection reports whether each replica publishes: what was led is published also after it was.
func (p *Publisher) NeedLeaderElection() bool { return false }

// Prepare compares the log with what is published of it, before anything is recorded. That it can't be done now is no error: Start
// goes on trying.
func (p *Publisher) Prepare(ctx context.Context) {
	p.step(ctx)
}

// Start publishes until the context ends, and once more then.
func (p *Publisher) Start(ctx context.Context) error {
	ticker := p.Clock.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			p.step(context.WithoutCancel(ctx))
			return nil
		case <-ticker.C():
			p.step(ctx)
		}
	}
}

// step publishes the head if it has moved, and complains now and then if it can't.
func (p *Publisher) step(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := p.publish(ctx); err != nil {
		if p.failures%complainEvery == 0 {
			p.Logger.Error(err, "Could not publish the head of the audit log; it goes on being written, and is published later",
				"unpublished", p.Audit.Tip().Seq-p.published.Seq)
		}
		p.failures++
		return
	}
	p.failures = 0
}

func (p *Publisher) publish(ctx context.Context) error {
	if err := p.ready(ctx); err != nil {
		return err
	}
	tip := p.Audit.Tip()
	if tip.Seq == 0 || tip.Seq == p.published.Seq {
		return nil
	}
	tip.Log = p.Log
	head := tip.Sign(p.signer)
	text, err := json.Marshal(head)
	if err != nil {
		return err
	}
	if err := p.patch(ctx, map[string]*string{p.Log + audit.HeadsKey: new(string(text))}); err != nil {
		return err
	}
	p.published = head
	p.seq.Store(head.Seq)
	p.Logger.Info("Published the head", "head", head)
	return nil
}

// ready has the key, and the log compared with what was published of it.
func (p *Publisher) ready(ctx context.Context) error {
	if p.signer == nil {
		key, err := p.key(ctx)
		if err != nil {
			return err
		}
		p.signer = key
		p.Logger.Info("Heads of the audit log are signed; keep the public key where nobody who can write in this namespace can change it",
			"publicKey", base64.StdEncoding.EncodeToString(p.public()))
	}
	if p.compared {
		return nil
	}
	var found corev1.ConfigMap
	err := p.Live.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: Name}, &found)
	if apierrors.IsNotFound(err) {
		if found, err = p.empty(); err == nil {
			err = client.IgnoreAlreadyExists(p.Client.Create(ctx, &found))
		}
	}
	if err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %w", p.Namespace, Name, err)
	}
	changes, err := p.compare(&found)
	if err != nil {
		return err
	}
	if len(changes) > 0 {
		if err := p.patch(ctx, changes); err != nil {
			return err
		}
	}
	p.compared = true
	return nil
}

func (p *Publisher) public() ed25519.PublicKey {
	key, _ := p.signer.Public().(ed25519.PublicKey)
	return key
}

func (p *Publisher) empty() (corev1.ConfigMap, error) {
	shown, err := publicPEM(p.public())
	return corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: Name},
		Data:       map[string]string{audit.PublicKeyKey: string(shown)},
	}, err
}

// compare compares the log with the head that is published of it, records in it what is missing, and returns what is to be changed in
// the ConfigMap before another head is.
func (p *Publisher) compare(found *corev1.ConfigMap) (map[string]*string, error) {
	changes := p.surplus(found.Data)
	mine := p.Log + audit.HeadsKey
	text, ok := found.Data[mine]
	if !ok {
		if tip := p.Audit.Tip(); tip.Seq > 0 {
			p.Logger.Info("No head is published of a log that has entries: it can't be told whether it was changed before now", "log", p.Log, "seq", tip.Seq)
		}
		return changes, nil
	}
	what, head := audit.LostHead, audit.SignedHead{}
	if err := json.Unmarshal([]byte(text), &head); err == nil && head.Log == p.Log && head.Verify(p.public()) == nil {
		if what, err = p.Audit.Compare(head); err != nil {
			return nil, fmt.Errorf("compare the log with its head: %w", err)
		}
	} else {
		head = audit.SignedHead{} // whatever it says
	}
	if what == "" {
		return changes, nil
	}
	if err := p.recordLoss(found, what, head); err != nil {
		return nil, err
	}
	changes[fmt.Sprintf("%s.lost-%d%s", p.Log, p.Clock.Now().Unix(), audit.HeadsKey)] = &text
	return changes, nil
}

// recordLoss records once that the log is not what was published of it, and says so aloud.
func (p *Publisher) recordLoss(found *corev1.ConfigMap, what string, head audit.SignedHead) error {
	if p.lost.Load() {
		return nil
	}
	_, err := p.Audit.Append(audit.Entry{Event: audit.EventLost, Lost: &audit.Lost{What: what, Seq: head.Seq, Hash: head.Hash}})
	if err != nil {
		return err
	}
	p.lost.Store(true)
	note := fmt.Sprintf("the audit log %s is not what was published of it (%s): its published head is of entry %d; somebody has changed the log "+
		"or its head while refit did not run; keep both for somebody to look at", p.Log, what, head.Seq)
	p.Logger.Error(nil, "The audit log was tampered with", "what", what, "published", head, "note", note)
	if p.Recorder != nil {
		p.Recorder.Eventf(found, nil, corev1.EventTypeWarning, "AuditLogLost", "Compare", "%s", note)
	}
	return nil
}

// surplus returns the changes that leave room for two heads, the oldest ones removed.
func (p *Publisher) surplus(data map[string]string) map[string]*string {
	changes := map[string]*string{}
	type aged struct {
		key  string
		time time.Time
	}
	var others []aged
	for key, text := range data {
		var h audit.SignedHead
		if !strings.HasSuffix(key, audit.HeadsKey) || key == p.Log+audit.HeadsKey {
			continue
		}
		_ = json.Unmarshal([]byte(text), &h) // what is no head is the oldest
		others = append(others, aged{key, h.Time})
	}
	slices.SortFunc(others, func(a, b aged) int { return cmp.Or(a.time.Compare(b.time), cmp.Compare(a.key, b.key)) })
	for _, a := range others[:max(0, len(others)-(Kept-2))] {
		changes[a.key] = nil
	}
	return changes
}

// patch changes keys of the ConfigMap, and leaves those of other replicas alone.
func (p *Publisher) patch(ctx context.Context, changes map[string]*string) error {
	body, err := json.Marshal(map[string]any{"data": changes})
	if err != nil {
		return err
	}
	to := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: Name}}
	err = p.Client.Patch(ctx, to, client.RawPatch(types.MergePatchType, body))
	if apierrors.IsNotFound(err) { // somebody has deleted it since
		p.compared = false
	}
	if err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %w", p.Namespace, Name, err)
	}
	return nil
}
