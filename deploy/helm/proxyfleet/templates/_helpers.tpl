{{/* What every object bears, and what selectors look for. */}}
{{- define "proxyfleet.labels" -}}
app.kubernetes.io/name: proxyfleet
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The FleetConfiguration, as the file that the program reads. */}}
{{- define "proxyfleet.fleet" -}}
{{ merge (dict "apiVersion" "crawl.example.com/v1alpha1" "kind" "FleetConfiguration") .Values.fleet | toYaml }}
{{- end }}

{{/* The rights on what may be in any namespace; the same for one namespace and for all. */}}
{{- define "proxyfleet.rules" -}}
- apiGroups: [crawl.example.com]
  resources: [proxies]
  verbs: [get, list, watch, patch]
- apiGroups: [crawl.example.com]
  resources: [proxies/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [secrets]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end }}
