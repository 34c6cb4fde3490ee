{{- /* The name of all objects. */ -}}
{{- define "kafka-group-sidecar.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
{{- end }}

{{- define "kafka-group-sidecar.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kafka-group-sidecar.labels" -}}
{{ include "kafka-group-sidecar.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* sidecar.yaml: the values over the chart's defaults. */ -}}
{{- define "kafka-group-sidecar.config" -}}
{{- $default := dict "admin" "0.0.0.0:9464" -}}
{{- if eq .Values.mode "gateway" -}}
{{- $advertise := printf "%s.%s.svc" (include "kafka-group-sidecar.name" .) .Release.Namespace -}}
{{- $_ := set $default "mode" "gateway" -}}
{{- $gateway := dict "advertise" $advertise -}}
{{- if not (dig "gateway" "one_port" false .Values.config) -}}
{{- $_ := set $gateway "first_port" 9100 -}}
{{- $_ := set $gateway "strict_ports" true -}}
{{- end -}}
{{- $_ := set $default "gateway" $gateway -}}
{{- $_ := set $default "limits" (dict "drain_seconds" 10) -}}
{{- else -}}
{{- $_ := set $default "own_connection" (dict "address" "127.0.0.1:19094") -}}
{{- $_ := set $default "limits" (dict "drain_seconds" 1) -}}
{{- end -}}
{{- if not .Values.config.listeners -}}
{{- $_ := set $default "listen" "0.0.0.0:9092" -}}
{{- if eq .Values.mode "sidecar" -}}
{{- $_ := set $default "upstream" "127.0.0.1:19092" -}}
{{- end -}}
{{- end -}}
{{- mergeOverwrite $default (deepCopy .Values.config) | toYaml -}}
{{- end }}

{{- /* The ports of the Service, with the number of the sidecar's own port for each. */ -}}
{{- define "kafka-group-sidecar.ports" -}}
{{- $config := include "kafka-group-sidecar.config" . | fromYaml -}}
{{- $listen := $config.listen -}}
{{- range $config.listeners }}{{ $listen = .listen }}{{ end -}}
- {name: bootstrap, port: {{ regexFind "[0-9]+$" $listen }}}
{{- if not $config.gateway.one_port }}
{{- range .Values.brokerIds }}
- {name: broker-{{ . }}, port: {{ add $config.gateway.first_port . }}}
{{- end }}
{{- end }}
{{- end }}

{{- /* HTTPS if the admin port uses TLS. */ -}}
{{- define "kafka-group-sidecar.adminScheme" -}}
{{- if dig "admin_access" "certificate_file" "" .Values.config }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}

{{- /* The fields of the container, without restartPolicy. */ -}}
{{- define "kafka-group-sidecar.common" -}}
{{- $scheme := ternary ", scheme: HTTPS" "" (eq (include "kafka-group-sidecar.adminScheme" .) "HTTPS") -}}
{{- if not (hasSuffix ":9464" (dig "admin" ":9464" .Values.config)) }}
{{- fail "config.admin: the probes and the PodMonitor use port 9464" }}
{{- end -}}
name: group-sidecar
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [run, --config, /etc/group-sidecar/sidecar.yaml]
ports:
  - {name: sidecar-admin, containerPort: 9464}
startupProbe:
  httpGet: {path: /startupz, port: 9464{{ $scheme }}}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: 9464{{ $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: 9464{{ $scheme }}}
  periodSeconds: 5
  timeoutSeconds: 5
resources: {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
  seccompProfile: {{- toYaml .Values.seccompProfile | nindent 4 }}
volumeMounts:
  - {name: group-sidecar-config, mountPath: /etc/group-sidecar, readOnly: true}
{{- range $index, $each := .Values.secrets }}
  - {name: group-sidecar-secret-{{ $index }}, mountPath: {{ $each.mountPath }}, readOnly: true}
{{- end }}
{{- end }}

{{- /* For your own StatefulSet: an entry of initContainers, or nothing if the sidecar is not enabled. */ -}}
{{- define "kafka-group-sidecar.container" -}}
{{- if .Values.enabled -}}
- {{ include "kafka-group-sidecar.common" . | nindent 2 | trim }}
  restartPolicy: Always
{{- end -}}
{{- end }}

{{- /* For your own StatefulSet: the entries of volumes. */ -}}
{{- define "kafka-group-sidecar.volumes" -}}
{{- if .Values.enabled -}}
- name: group-sidecar-config
  configMap: {name: {{ include "kafka-group-sidecar.name" . }}}
{{- range $index, $each := .Values.secrets }}
- name: group-sidecar-secret-{{ $index }}
  secret: {secretName: {{ $each.secret }}}
{{- end }}
{{- end -}}
{{- end }}

{{- /* For your own StatefulSet: where the broker binds its listener for clients, as HOST:PORT. */ -}}
{{- define "kafka-group-sidecar.brokerBinds" -}}
{{- if .Values.enabled }}127.0.0.1:19092{{ else }}:9092{{ end }}
{{- end }}
