package controller

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"github.com/proxyfleet/fleet/proxy"
)

// patch is a JSON merge patch.
type patch = map[string]any

// metaPatch changes the finalizer and annotations of an object to those of p, which a fleet has read. What others keep there is not
// in it. With the finalizer comes the mark of the fleet, if it has a name, also where an earlier fleet left its finalizer.
func metaPatch(o *object, p *proxy.Proxy, fleet string) (patch, error) {
	meta := patch{}
	changed := changes(anyMap(o.Annotations), anyMap(p.Annotations))
	takes, leaves := p.Finalizer && !o.keptBy(fleet), !p.Finalizer && o.keptBy(fleet)
	if takes && fleet != "" {
		changed[FleetAnnotation] = fleet
	}
	if len(changed) > 0 {
		meta["annotations"] = changed
	}
	switch {
	case takes && !o.finalizer():
		meta["finalizers"] = append(slices.Clone(o.Finalizers), proxy.FinalizerName)
	case leaves:
		meta["finalizers"] = slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == proxy.FinalizerName })
	}
	return patch{"metadata": compared(o, meta)}, nil
}

// statusPatch changes the status of an object to that of p.
func statusPatch(o *object, p *proxy.Proxy) (patch, error) {
	from, err := jsonMap(o.status)
	if err != nil {
		return nil, err
	}
	to, err := jsonMap(p.Status)
	if err != nil {
		return nil, err
	}
	body := patch{"metadata": compared(o, patch{})}
	if changed := changes(from, to); len(changed) > 0 {
		body["status"] = changed
	}
	return body, nil
}

// compared adds to the metadata of a patch what makes the API server refuse it unless the object is still this one.
func compared(o *object, meta patch) patch {
	meta["uid"], meta["resourceVersion"] = o.UID, o.ResourceVersion
	return meta
}

// changes returns the merge patch that makes to out of from.
func changes(from, to map[string]any) patch {
	changed := patch{}
	for name, value := range to {
		was, had := from[name]
		wasMap, isMap := was.(map[string]any)
		if valueMap, ok := value.(map[string]any); ok && isMap {
			if within := changes(wasMap, valueMap); len(within) > 0 {
				changed[name] = within
			}
		} else if !had || !reflect.DeepEqual(was, value) {
			changed[name] = value
		}
	}
	for name := range from {
		if _, stays := to[name]; !stays {
			changed[name] = nil
		}
	}
	return changed
}

// jsonMap returns the JSON of v as a map, with numbers as they are written.
func jsonMap(v any) (map[string]any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return m, d.Decode(&m)
}

func anyMap(m map[string]string) map[string]any {
	return maps.Collect(func(yield func(string, any) bool) {
		for k, v := range m {
			if !yield(k, v) {
				return
			}
		}
	})
}
